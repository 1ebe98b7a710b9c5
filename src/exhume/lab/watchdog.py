"""A stand-in for a driver's watchdog: when nothing came across the link for too long it says so, in the words of the ENA
driver, into a file that stands in for the kernel's log. Never into the node's own, where others would act on it."""

import time
from pathlib import Path

from exhume.kernel.clock import Clock
from exhume.lab.measure import Heard, Sampled

# ena_com and ena_netdev.c of amzn-drivers 2.11; the real threshold is 5 s, and here as much sooner as stalls are shorter.
PCI = "0000:20:03.0"
_PAUSED = (
    "ena {pci} {device}: TX q 0 is paused for too long (threshold {threshold}). "
    "Time since last napi {age} usec. napi scheduled: 1"
)
_LATE = "ena {pci} {device}: napi handler hasn't been called for a long time but is scheduled"
_RESET = "ena {pci}: Device reset completed successfully, Driver info: Elastic Network Adapter (ENA) v2.11.0g"


class Watchdog:
    """Watches what the ping tells."""

    def __init__(self, log: Path, device: str, ping: Heard, threshold_ms: float = 1000) -> None:
        self.resets = 0
        self._log, self._device, self._ping, self._threshold_ms = log, device, ping, threshold_ms
        self._sequence = 0
        self._until = 0.0
        with Clock() as clock:
            self._offset_ns = clock.now() - time.monotonic_ns()
        self._sampled = Sampled(0.2, self._look)

    def _look(self, now: float) -> None:
        quiet_ms = self._ping.get("quiet_ms")
        if quiet_ms < self._threshold_ms or now < self._until:
            return
        self._until = now + 5  # a reset takes its time
        self.resets += 1
        numbers = {"pci": PCI, "device": self._device, "threshold": int(self._threshold_ms * 1000), "age": int(quiet_ms * 1000)}
        for line in (_PAUSED, _LATE, _RESET):
            self._say(line.format(**numbers))

    def _say(self, line: str) -> None:
        """As /dev/kmsg has it: level, sequence, microseconds, flag; text."""
        micros = (time.monotonic_ns() + self._offset_ns) // 1000
        with open(self._log, "a") as file:
            file.write(f"4,{self._sequence},{micros},-;{line}\n")
        self._sequence += 1

    def close(self) -> None:
        self._sampled.close()
