"""Events of a recording, decoded once: what one NIC reset, stall, restart, OOM kill or lockup is.

Findings, metrics, fleet tables, proofs and pages count these rows, so that one night gives the same numbers everywhere. There
is no threshold here: which events matter is for the detectors to judge.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple, TypeVar, get_args

import numpy as np

from exhume.record import record
from exhume.recording.recording import Recording


@dataclass(frozen=True, slots=True)
class Event:
    """A row of the table `events`."""

    time: int
    kind: str
    subject: str
    message: str
    fields: dict[str, str]
    age_s: int
    """How long before the end of the recording it happened."""

    def integer(self, name: str) -> int | None:
        value = self.fields.get(name, "")
        return int(value) if value.removeprefix("-").isdecimal() and len(value) < 19 else None


def events(recording: Recording, *kinds: str) -> list[Event]:
    """In order of time; simultaneous events in an order that does not depend on that of the rows."""
    wanted = frozenset(kinds)
    end = recording.window[1]
    return sorted(
        (
            Event(
                row["time"],
                row["kind"],
                row["subject"],
                row["message"],
                dict(row["fields"]),
                max(0, end - row["time"]) // 1_000_000_000,
            )
            for row in recording["events"].rows()
            if row["kind"] in wanted
        ),
        key=lambda event: (event.time, event.kind, event.subject, event.message, sorted(event.fields.items())),
    )


# NIC resets

_WATCHDOG: Final = ("nic-tx-timeout", "xmit-timeout", "nic-queue-paused")
_TRIGGERED: Final = "nic-reset-triggered"
_ENDS: Final = ("nic-reset-done", "nic-reset-failed")
# Lines after which a driver resets its device. The transmit watchdog calls ndo_tx_timeout, which resets: `TX q N is paused for
# too long` is ENA's from 2.7.2 on, `xmit-timeout` the tracepoint net:net_dev_xmit_timeout. The others are ENA's own checks
# (check_for_* in ena_netdev.c, each calls ena_reset_device) and the hangs that ixgbe, igb and e1000e detect themselves.
# `TX hasn't completed` is none of them: single packets may be late without a reset.
GIVES_UP: Final = (
    *_WATCHDOG,
    "nic-napi-late",
    "nic-tx-hang",
    "nic-tx-lost",
    "nic-keepalive-lost",
    "nic-admin-queue-down",
    "nic-interrupt-lost",
    "nic-firmware-silent",
    _TRIGGERED,
)
# Lines after which ENA resets for one reason only, by the names of ENA_RESET_REASONS in sources/kernel_forms.py; the driver
# prints none of them itself. That the transmit watchdog fired is the reason of any driver.
REASONS: Final = {
    "nic-napi-late": "suspected-poll-starvation",
    "nic-keepalive-lost": "keep-alive",
    "nic-admin-queue-down": "admin-timeout",
    "nic-tx-lost": "missing-tx-completion",
    "nic-interrupt-lost": "missing-interrupt",
    "nic-tx-timeout": "netdev-watchdog",
}
# Drivers that log the end of a reset. While one is under way further lines are about it: ena_tx_timeout returns if
# ENA_FLAG_TRIGGER_RESET is set. Other drivers log that they give up and no end, so each time is a reset.
REPORT_THE_END: Final = ("ena",)
# dev_watchdog looks at a device every watchdog_timeo, 5 s or longer: lines that are closer than this are about one reset.
_SAME_NS: Final = 3 * 10**9
# ENA looks once a second and a reset takes seconds, more on a starving node. A line further from its reset than this is about
# another one.
NEAR_NS: Final = 60 * 10**9
_MOST_DEVICES: Final = 256
_PHASES: Final = {kind: phase for phase, kinds in enumerate((GIVES_UP[:-1], (_TRIGGERED,), _ENDS)) for kind in kinds}

ResetOutcome = Literal["done", "failed", "not-reported"]


Value = TypeVar("Value")


@record(frozen=True, slots=True)
class NicReset:
    """One reset of a network device: the lines from the first with which its driver gave up to the one that says how it ended.

    A driver that does not log the end has an outcome of not-reported, and so has a reset that was still under way.
    """

    device: str
    driver: str
    lines: tuple[Event, ...]

    @property
    def time(self) -> int:
        """When the driver gave up."""
        return self.lines[0].time

    @property
    def end(self) -> Event | None:
        return next((line for line in reversed(self.lines) if line.kind in _ENDS), None)

    @property
    def last(self) -> Event:
        """The line that says how it ended, else the last one."""
        return self.end or self.lines[-1]

    @property
    def outcome(self) -> ResetOutcome:
        end = self.end
        return "not-reported" if end is None else "done" if end.kind == "nic-reset-done" else "failed"

    @property
    def reason(self) -> str:
        """Empty if no line tells. ENA suspects poll starvation where it would else call it by the watchdog."""
        known = [line for line in self.lines if line.kind in REASONS]
        if not known:
            return ""
        best = max(known, key=lambda line: (line.kind == "nic-napi-late", line.kind != "nic-tx-timeout", line.time))
        return best.fields.get("reset_reason") or REASONS[best.kind]


@dataclass(slots=True)
class _Latest:
    """The latest reset of a device."""

    time: int
    """Of its last line."""
    end: str
    triggered: bool


class ResetDecoder:
    """Resets from batches of a recording. Events are taken in order of time, so that any division into batches gives the same
    resets as the whole does; only what is known from earlier lines is used."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        """Network device by PCI address: the line that a reset ends with has only that."""
        self._drivers: dict[str, str] = {}
        self._latest: dict[str, _Latest] = {}

    def decode(self, rows: Recording) -> list[NicReset]:
        """The resets that begin in a batch, each with the lines that the batch has of it."""
        found: list[tuple[str, list[Event]]] = []
        current: dict[str, list[Event]] = {}
        names = {name for name in rows["events"].texts("kind") if name.startswith("nic-") or name in _PHASES}
        for event in sorted(events(rows, *names), key=lambda event: (event.time, _PHASES.get(event.kind, 0))):
            device = self._device(event, current)
            if event.kind not in _PHASES:
                continue
            if self._begins(device, event):
                current[device] = [event]
                found.append((device, current[device]))
            elif device in current:
                current[device].append(event)
        return [NicReset(device, self._drivers.get(device, ""), tuple(lines)) for device, lines in found]

    def _device(self, event: Event, current: dict[str, list[Event]]) -> str:
        pci, device, driver = (event.fields.get(name, "") for name in ("pci", "device", "driver"))
        if pci and device:
            if self._names.get(pci) != device:  # earlier lines of the same reset had its address only
                _rename(self._latest, pci, device)
                _rename(self._drivers, pci, device)
                _rename(current, pci, device)
            _remember(self._names, pci, device)
        device = self._names.get(pci or event.subject, event.subject)
        if driver:
            _remember(self._drivers, device, driver)
        return device

    def _begins(self, device: str, event: Event) -> bool:
        latest = self._latest.get(device)
        ends = event.kind in _ENDS
        if latest is None or not self._continues(device, latest, event):
            _remember(self._latest, device, _Latest(event.time, event.kind if ends else "", event.kind == _TRIGGERED))
            return True
        latest.time = max(latest.time, event.time)
        latest.end = event.kind if ends else latest.end
        latest.triggered = latest.triggered or event.kind == _TRIGGERED
        return False

    def _continues(self, device: str, latest: _Latest, event: Event) -> bool:
        gap = abs(event.time - latest.time)
        if event.kind in _ENDS:
            if not latest.end:
                return gap <= NEAR_NS
            # `Reset attempt failed` and `Device reset completed, status: -5` are of one reset. Each success is a reset.
            return latest.end == event.kind == "nic-reset-failed" and gap <= _SAME_NS
        if latest.end:
            return event.time <= latest.time
        reported = self._drivers.get(device, "") in REPORT_THE_END
        announced = event.kind == _TRIGGERED and not latest.triggered
        return gap <= (NEAR_NS if reported or announced else _SAME_NS)


def nic_resets(recording: Recording) -> list[NicReset]:
    """In order of time. Those that the kernel log still had from before the recording are among them."""
    names = netdevs(recording)
    return [
        reset if reset.device not in names else NicReset(names[reset.device], reset.driver, reset.lines)
        for reset in ResetDecoder().decode(recording)
    ]


def netdevs(recording: Recording) -> dict[str, str]:
    """PCI address to network device, from the lines that name both: the line that a reset ends with names only the first."""
    named = []
    for row in recording["events"].rows():
        fields = dict(row["fields"])
        if fields.get("pci") and fields.get("device"):
            named.append((row["time"], fields["pci"], fields["device"]))
    return {pci: device for _, pci, device in sorted(named)}


def _rename(known: dict[str, Value], old: str, new: str) -> None:
    if old in known:
        known.setdefault(new, known.pop(old))


def _remember(into: dict[str, Any], key: str, value: object) -> None:
    into.pop(key, None)
    into[key] = value
    while len(into) > _MOST_DEVICES:
        del into[next(iter(into))]


# Stalls

# A longer stall is not one but nonsense in the recording.
_LONGEST_NS: Final = 24 * 3600 * 10**9
_FURTHEST_NS: Final = 1 << 62
# If the cores were not read for this long, the recorder was not there: whether a stall went on is unknown.
_SILENCE_NS: Final = 10 * 10**9
# If the end of a stall was not seen for this long, none comes: the thread that waited is gone, with its device.
_LASTS_NS: Final = 60 * 10**9


@record(frozen=True, slots=True, kw_only=True)
class Stall:
    """Something was due and did not run: a poll of a network device, a softirq, a thread. Times are the recording's."""

    what: str
    core: int
    """-1: unknown."""
    start: int
    end: int
    """If the end was not recorded, as far as the stall was seen, or as far as the recording goes."""
    ended: bool
    """Its end was recorded."""
    over: bool
    """It had ended, seen or not, when the recording did."""
    error_ns: int
    device: str
    netns: int
    waiting: int
    """The thread that waited, 0 for a softirq."""
    thread: str
    """Its name."""
    vectors: str
    """The softirqs that were due."""
    throttled: bool
    """The quota of its cgroup held the thread back."""
    holder_tid: int | None
    """The thread that held the core; None: unknown, 0: the core was idle."""
    holder_pid: int
    holder_comm: str
    holder_cgroup: str
    policy: str
    """The holder's scheduling policy, if it is not an ordinary one."""
    stack: tuple[str, ...]
    """The holder's kernel stack, the innermost function first."""
    samples: int
    """Stack samples of the holder in that time."""
    total: int
    """Of the core, whatever thread they are of."""

    @property
    def ns(self) -> int:
        return self.end - self.start

    @property
    def ms(self) -> int:
        return self.ns // 1_000_000


def stalls(recording: Recording) -> list[Stall]:
    """In order of time, whatever it was that waited."""
    last = recording.derived("events", _last_words)
    until = _seen_until(recording) if last else _Until(())
    found = (_stall(event, until.after(event.time) if lasts else event.time) for event, lasts in last)
    return sorted((stall for stall in found if stall is not None), key=_order)


def _last_words(recording: Recording) -> tuple[tuple[Event, bool], ...]:
    """The last event of each stall, and whether it may go on. A stall that was announced and has ended is one. What waits may
    change while it lasts, the start does not; and what waits anew does not wait any longer."""
    known: dict[tuple[int | None, int, int | None], Event] = {}
    latest: dict[tuple[str, int | None], int] = {}
    for event in events(recording, "stall", "stall-begins"):
        core, start, tid = key = event.integer("cpu"), event.integer("start_ns") or event.time, event.integer("tid")
        known[key] = max(known[key], event, key=_last_word) if key in known else event
        waits = ("core", core) if tid is None else ("thread", tid)
        latest[waits] = max(start, latest.get(waits, start))
    return tuple(
        (event, event.kind != "stall" and start == latest[("core", core) if tid is None else ("thread", tid)])
        for (core, start, tid), event in known.items()
    )


def _last_word(event: Event) -> tuple[bool, int, list[tuple[str, str]]]:
    return event.kind == "stall", event.time, sorted(event.fields.items())


def _order(stall: Stall) -> tuple[object, ...]:
    """By time; of those at once any order will do that does not depend on that of the rows."""
    holder = (stall.holder_comm, stall.holder_pid, -1 if stall.holder_tid is None else stall.holder_tid, stall.holder_cgroup)
    of = (stall.device, stall.netns, stall.waiting, stall.what, stall.stack, stall.samples, stall.total)
    return stall.start, stall.end, stall.core, *of, *holder


def _stall(event: Event, end: int) -> Stall | None:
    length = (event.integer("us") or 0) * 1000
    start = event.time - length
    if not 0 < length <= end - start <= _LONGEST_NS or abs(end) >= _FURTHEST_NS:
        return None
    number, fields = event.integer, event.fields
    return Stall(
        what=fields.get("what", ""),
        core=core if (core := number("cpu")) is not None else -1,
        start=start,
        end=end,
        ended=event.kind == "stall",
        over=event.kind == "stall" or end == event.time,
        error_ns=max(0, number("error_us") or 0) * 1000,
        device=fields.get("device", ""),
        netns=number("netns") or 0,
        waiting=number("tid") or 0,
        thread=fields.get("thread", ""),
        vectors=fields.get("vectors", ""),
        throttled="throttled" in fields,
        holder_tid=number("offender_tid"),
        holder_pid=number("offender_pid") or 0,
        holder_comm=fields.get("offender_comm", ""),
        holder_cgroup=fields.get("offender_cgroup", ""),
        policy=fields.get("offender_policy", ""),
        stack=tuple(name for name in fields.get("stack", "").split(";") if name),
        samples=max(0, number("offender_samples") or 0),
        total=max(0, number("samples") or 0),
    )


class _Until(NamedTuple):
    times: tuple[int, ...]
    """When the recorder last read the cores before it fell silent, and at the end."""

    def after(self, time: int) -> int:
        last = next((last for last in self.times if last >= time), time)
        return last if last - time <= _LASTS_NS else time


def _seen_until(recording: Recording) -> _Until:
    for name in ("cpu", "anchors"):
        times = np.unique(recording[name].ints("time"))
        if len(times):
            silent = np.flatnonzero(np.diff(times) > _SILENCE_NS)
            return _Until((*times[silent].tolist(), int(times[-1])))
    return _Until(())


# Restarts


@record(frozen=True, slots=True)
class Restart:
    """systemd restarted a unit: between two readings of NRestarts, `times` times."""

    time: int
    """Of the later reading."""
    unit: str
    times: int


def restarts(recording: Recording) -> list[Restart]:
    """In order of time."""
    table = recording["units"]
    readings: dict[str, list[tuple[int, int]]] = {}
    for time, unit, count in zip(
        table.ints("time").tolist(), table.texts("unit"), table.ints("restarts").tolist(), strict=True
    ):
        readings.setdefault(unit, []).append((time, count))
    found = [Restart(time, unit, more) for unit, rows in readings.items() for time, more in risen(sorted(rows))]
    return sorted(found, key=lambda one: (one.time, one.unit))


def risen(readings: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """When NRestarts of one unit was seen to be larger, and by how much. It goes back to 0 when a unit stops for good, so only
    growth counts; -1 is a reading that has no number."""
    known = [(time, count) for time, count in readings if count >= 0]
    yield from ((time, count - before) for (_, before), (time, count) in pairwise(known) if count > before)


# OOM kills


@record(frozen=True, slots=True, kw_only=True)
class OomKill:
    """The kernel killed a process for memory. Each kill has a `Killed process` line, which is never rate-limited; the line that
    names the limit and the cgroup is (mm/oom_kill.c)."""

    event: Event
    memcg: bool
    """At the limit of a cgroup, as the line itself says."""
    comm: str
    cgroup: str
    """Of the victim."""
    limit_cgroup: str
    """The cgroup whose limit was reached; empty if it was the node's, or unknown."""
    constraint: str
    """CONSTRAINT_* of the line before it, from 5.0 on (ef8444ea01d7); empty if there is none."""

    @property
    def time(self) -> int:
        return self.event.time


def oom_kills(recording: Recording) -> list[OomKill]:
    """In order of time."""
    seen = events(recording, "oom-kill", "memcg-oom-kill", "oom-summary")
    summaries: dict[tuple[str, str], dict[str, str]] = {}
    kills = []
    for event in sorted(seen, key=lambda event: (event.time, event.kind != "oom-summary")):
        if event.kind == "oom-summary":
            summaries[_victim(event)] = event.fields
            continue
        fields = summaries.pop(_victim(event), {}) | event.fields
        kills.append(
            OomKill(
                event=event,
                memcg=event.kind == "memcg-oom-kill",
                comm=event.subject,
                cgroup=fields.get("cgroup", ""),
                limit_cgroup=fields.get("limit_cgroup", ""),
                constraint=fields.get("constraint", ""),
            )
        )
    return kills


def _victim(event: Event) -> tuple[str, str]:
    return event.fields.get("pid", ""), event.fields.get("comm", "")


# Lockups

LockupKind = Literal["soft-lockup", "hard-lockup", "rcu-stall", "rcu-kthread-starved", "hung-task"]
LOCKUP_KINDS: Final[tuple[LockupKind, ...]] = get_args(LockupKind)
# An RCU stall has a line for each core that is late, and that one has the trace.
_RCU_CORE: Final = "rcu-stall-cpu"
_TOGETHER_NS: Final = 2 * 10**9
_LONGEST_S: Final = 86_400
# Watchdogs repeat themselves while a lockup lasts: the soft one every 20 s or so, RCU's after three times its timeout and 3 s
# (rcu_cpu_stall_timeout is 21 s, 60 s in some distributions), hung tasks every 120 s. What comes later is another lockup.
_LOCKUP_APART_NS: Final = 300 * 10**9


@record(frozen=True, slots=True)
class Lockup:
    """A line with which one of the kernel's watchdogs complains of a core or a task, with its call trace."""

    kind: LockupKind
    event: Event
    core: int
    """-1 if the line names none: a hung task is on no core."""
    comm: str
    pid: int
    stuck_ns: int
    """As the line says; 0 if it does not."""
    stack: tuple[str, ...]
    """The call trace, the innermost function first."""


_AnyLockup = TypeVar("_AnyLockup", bound=Lockup)


def lockups(recording: Recording) -> list[Lockup]:
    """In order of time, a row for each line: `lockup_episodes` puts together those of one lockup."""
    seen = events(recording, *LOCKUP_KINDS, _RCU_CORE, "call-trace")
    late: dict[tuple[str, str, str], str] = {}
    for event in seen:
        if event.kind == "call-trace":
            of = event.fields.get("of", ""), event.fields.get("of_ns", ""), event.fields.get("cpu", "")
            late[of] = max(late.get(of, ""), event.fields.get("stack", ""), key=len)
    of_cores = [event.time for event in seen if event.kind == _RCU_CORE]
    found = []
    for event in seen:
        if event.kind == "call-trace" or (event.kind == "rcu-stall" and _follows(of_cores, event.time)):
            continue
        rest = late.get((event.kind, str(event.time), event.fields.get("cpu", "")), "")
        found.append(_lockup(event, max(event.fields.get("stack", ""), rest, key=len)))
    return found


def _follows(times: list[int], time: int) -> bool:
    at = bisect_left(times, time)
    return at < len(times) and times[at] - time <= _TOGETHER_NS


def _lockup(event: Event, trace: str) -> Lockup:
    # Of RCU's own thread the trace says where it waits to run, not what keeps it from that.
    stack = tuple(name for name in trace.split(";") if name) if event.kind != "rcu-kthread-starved" else ()
    cpu = event.integer("cpu")
    return Lockup(
        next((kind for kind in LOCKUP_KINDS if kind == event.kind), "rcu-stall"),
        event,
        -1 if cpu is None or event.kind == "hung-task" else cpu,
        event.fields.get("comm", ""),
        event.integer("pid") or 0,
        min(max(0, event.integer("seconds") or 0), _LONGEST_S) * 10**9,
        stack,
    )


def lockup_episodes(seen: Iterable[_AnyLockup]) -> list[list[_AnyLockup]]:
    """Lines of one kind about one core are one lockup until the kernel has been silent about it for some minutes."""
    alike: dict[tuple[str, int], list[list[_AnyLockup]]] = {}
    for one in sorted(seen, key=lambda one: one.event.time):
        parts = alike.setdefault((one.kind, one.core), [])
        if parts and one.event.time - parts[-1][-1].event.time <= _LOCKUP_APART_NS:
            parts[-1].append(one)
        else:
            parts.append([one])
    return [part for parts in alike.values() for part in parts]
