"""Resets of network devices as the kernel's log tells of them, each once and with the reason that a line before it gave.

Most drivers say that the transmit watchdog fired, each queue in a line of its own, and nothing when the reset is done; ENA says
both, and resets for other reasons as well. So lines of the watchdog count, those close together once, and the end of a reset
counts where none of them came before it.
"""

from collections.abc import Iterator
from typing import Any

from exhume.agent.metrics import MOST_DEVICES
from exhume.diagnosis.findings.nic_reset import REASONS
from exhume.recording.recording import Recording

# A line of the driver further from its reset than this is about another one (diagnosis/findings/nic_reset.py has it so).
_NEAR_NS = 60 * 10**9
_TIMEOUT, _ENDS = "nic-tx-timeout", ("nic-reset-done", "nic-reset-failed")
# dev_watchdog looks every watchdog_timeo (5 s and more): lines that are closer than this are about the same reset.
_SAME_NS = 3 * 10**9
# So many devices are remembered by their PCI address, and so many reasons that wait for their reset; the oldest go.
_MOST = 4 * MOST_DEVICES


class Resets:
    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        """Network device by PCI address: the line that a reset ends with has only that."""
        self._reasons: dict[str, tuple[int, str]] = {}
        self._fired: dict[str, int] = {}
        """When the watchdog fired last, as long as its reset has not ended."""

    def new(self, rows: Recording) -> Iterator[tuple[int, str, str]]:
        """Time, device and reason of each reset in a batch."""
        events = sorted(rows["events"].rows(), key=lambda row: int(row["time"]))
        for row in events:
            fields = dict(row["fields"])
            if fields.get("pci") and fields.get("device"):
                _remember(self._names, fields["pci"], fields["device"])
        for row in events:
            time, kind, fields = int(row["time"]), row["kind"], dict(row["fields"])
            name = self._names.get(fields.get("pci") or row["subject"], row["subject"])
            if kind in REASONS:
                _remember(self._reasons, name, (time, fields.get("reset_reason") or REASONS[kind]))
            if kind == _TIMEOUT:
                fired = self._fired.get(name)
                _remember(self._fired, name, time)
                if fired is None or time - fired > _SAME_NS:
                    yield time, name, REASONS[_TIMEOUT]
            elif kind in _ENDS:
                at, reason = self._reasons.pop(name, (0, ""))
                fired = self._fired.pop(name, None)
                if fired is None or time - fired > _NEAR_NS:
                    yield time, name, reason if reason and time - at <= _NEAR_NS else "unknown"


def _remember(into: dict[str, Any], key: str, value: Any) -> None:
    into.pop(key, None)
    into[key] = value
    while len(into) > _MOST:
        del into[next(iter(into))]
