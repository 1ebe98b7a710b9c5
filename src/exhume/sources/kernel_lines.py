"""What a line of the kernel log says: known complaints of drivers and kernel as typed events, by the table of forms.

Pure functions of text. A line is an event only if the format matches from its first character on: a cgroup path or a
process name that quotes a driver's complaint further inside the line is not one.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from exhume.recording.recording import Labels, labels
from exhume.sources.kernel_event import Event
from exhume.sources.kernel_forms import ANY, KERNEL_FORMS, NIC_FORMS, Form
from exhume.sources.kernel_traces import TRACED, Report, Reports


@dataclass(frozen=True, slots=True)
class Line:
    """An event and where it comes from."""

    time: int
    message: str
    event: Event

    @property
    def row(self) -> tuple[int, str, str, str, str, Labels]:
        """As the table of events has it."""
        return self.time, self.event.kind, self.event.subject, self.event.severity, self.message, self.event.fields


FORMS = (*NIC_FORMS, *KERNEL_FORMS)
KINDS = frozenset(form.kind for form in FORMS)

_BY_DRIVER = {
    driver: tuple(form for form in NIC_FORMS if form.driver in (driver, ANY)) for driver in {form.driver for form in NIC_FORMS}
}
# pr_fmt of the files these lines come from; older kernels print some of them bare.
_PREFIXES = ("watchdog: ", "NMI watchdog: ", "rcu: ")

# What interesting() looks for, from the cheapest test to the dearest; /dev/kmsg has a tab as an escape.
_STARTS = tuple(
    start.replace("\t", "\\x09").encode()
    for start in sorted(
        {f"{form.driver} " for form in NIC_FORMS if form.driver != ANY}
        | {form.start for form in KERNEL_FORMS if form.start}
        | set(_PREFIXES)
    )
)
_STARTLESS = tuple(form for form in FORMS if form.driver == ANY or not (form.driver or form.start))
_ENDS = tuple(form.end.encode() for form in _STARTLESS if form.end == form.needle)
_NEEDLES = tuple(form.needle.encode() for form in _STARTLESS if form.end != form.needle)

# __netdev_printk in net/core/dev.c, dev_driver_string and dev_name before it: `ena 0000:20:03.0 eth0 (unregistering): `.
# Old kernels have a colon after the bus address as well.
_HEAD = (
    r"([A-Za-z][\w-]*) ([^\s:]\S*?)(?::? ([^\s:/()]+))?(?: \(unnamed net_device\))?"
    r"(?: \((?:uninitialized|unregistering|unregistered|released|dummy|unknown)\))?: "
)
_MOST_DEVICES = 4096
"""A log that somebody made up can name any number of them."""
_PCI = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"


def interesting(raw: bytes) -> bool:
    """Whether it is worth asking classify() about a line, given as it stands in /dev/kmsg. Lets some strangers pass."""
    if raw.startswith(_STARTS) or raw.endswith(_ENDS):
        return True
    for needle in _NEEDLES:  # noqa: SIM110 - a generator would cost more than the search itself
        if needle in raw:
            return True
    return False


def classify(message: str) -> Event | None:
    """What a line of the kernel's own says; None for all the lines that nobody here asks about."""
    message = message.rstrip("\n")
    head = re.match(_HEAD, message)
    if head is not None and any(map(str.isdigit, head[2])):
        driver, bus, device = head.groups()
        known = {"driver": driver, "pci" if re.fullmatch(_PCI, bus) else "bus": bus}
        if device:
            known["device"] = device
        event = _match(_BY_DRIVER.get(driver, _BY_DRIVER[ANY]), message[head.end() :], known)
        if event is not None:
            return event
    for prefix in _PREFIXES:
        if message.startswith(prefix):
            message = message[len(prefix) :]
            break
    return _match(KERNEL_FORMS, message, {})


def _match(forms: Iterable[Form], text: str, known: dict[str, str]) -> Event | None:
    for form in forms:
        if form.needle in text and (match := form.expression.match(text)):
            return _event(form, known | _normalised(match.groupdict()) | dict(form.extra))
    return None


def _normalised(groups: dict[str, str]) -> dict[str, str]:
    values = {}
    for name, value in groups.items():
        if name.endswith("_us"):
            values[f"{name[:-3]}_ms"] = str(int(value) // 1000)
        elif name == "cpu" and value.startswith("-"):
            continue  # ENA prints -1 for the queues of XDP, RCU for a kthread that is gone
        elif value:
            values[name] = value
    return values


def _event(form: Form, values: dict[str, str]) -> Event:
    kind = form.kind
    if kind == "nic-reset-done" and values.get("status", "0") != "0":
        kind = "nic-reset-failed"
    if form.subject == "cpu":
        subject = f"cpu{values['cpu']}" if "cpu" in values else "node"
    else:
        subject = values.get(form.subject) or values.get("pci") or values.get("bus") or "node"
    return Event(kind, subject, form.severity, labels(**values))


class Joiner:
    """Puts together what the kernel spreads over several lines; remembers a line or two per device, no more.

    - ENA 2.17 says `[1/2] ...` and `[2/2] qid: ..., napi CPU: ...`: one event, with the CPU in it.
    - `Device reset completed` names a PCI address only; the network device is known from the lines before it.
    - `oom-kill:` tells the cgroup of the victim, the line after it that it was killed.
    - A lockup is followed by a call trace: its functions are the event's `stack`. What comes with a later batch is an event
      of its own, `call-trace`, which says of which one it is (`of_ns`), since that one was told already.
    """

    def __init__(self) -> None:
        self._halves: dict[str, Event] = {}
        self._devices: dict[str, str] = {}
        self._victim: Event | None = None
        self._reports = Reports()

    def join(self, lines: Iterable[tuple[int, str]]) -> list[Line]:
        joined: list[Line] = []
        half_at: dict[str, int] = {}
        for time, message in lines:
            event = classify(message)
            if event is None:
                self._reports.line(time, message)
                continue
            event = self._named(event)
            if event.kind == "nic-queue-cpu":
                half = self._halves.pop(event.subject, None)
                event = _straightened(event, half)
                at = half_at.pop(event.subject, None)
                if at is not None and half is not None and event.get("queue") == half.get("queue"):
                    first = joined[at]
                    whole = first.event.with_fields(**dict(event.fields))
                    joined[at] = Line(first.time, f"{first.message} {message}", whole)
                    continue
            elif "[1/2] " in message and event.get("queue") is not None:
                if len(self._halves) >= _MOST_DEVICES:
                    self._halves.clear()
                self._halves[event.subject] = event
                half_at[event.subject] = len(joined)
            elif event.kind == "oom-summary":
                self._victim = event if _unambiguous(message) else None
            elif event.kind in ("oom-kill", "memcg-oom-kill"):
                event = self._placed(event)
            if event.kind in TRACED:
                self._reports.opens(time, event, len(joined))
            joined.append(Line(time, message, event))
        for report in self._reports.news():
            if report.at >= 0:
                line = joined[report.at]
                joined[report.at] = Line(line.time, line.message, line.event.with_fields(**report.fields))
            else:
                joined.append(_trace(report))
        self._reports.told()
        return joined

    def _named(self, event: Event) -> Event:
        pci = event.get("pci")
        if pci is None:
            return event
        device = event.get("device")
        if device is not None:
            if len(self._devices) >= _MOST_DEVICES:
                self._devices.clear()
            self._devices[pci] = device
        elif pci in self._devices:
            return replace(event.with_fields(device=self._devices[pci]), subject=self._devices[pci])
        return event

    def _placed(self, event: Event) -> Event:
        """A kill with the cgroup of its victim."""
        victim, self._victim = self._victim, None
        if victim is None or victim.get("pid") != event.get("pid"):
            return event
        return event.with_fields(**{name: value for name, value in victim.fields if name.endswith("cgroup")})


def _trace(report: Report) -> Line:
    of = report.event
    fields = {**dict(of.fields), **report.fields, "of": of.kind, "of_ns": str(report.time)}
    return Line(report.time, "Call Trace:", Event("call-trace", of.subject, "info", labels(**fields)))


def _unambiguous(summary: str) -> bool:
    """A cgroup can be named so that it seems to end the path of the victim and to begin another's."""
    return all(summary.count(mark) <= 1 for mark in (",oom_memcg=", ",task_memcg=", ",task=", ",pid="))


def _straightened(event: Event, half: Event | None) -> Event:
    """The second half with `queue` and `cpu` the right way round, if the first half says which queue it is about."""
    printed = event.get("printed_qid"), event.get("printed_cpu")
    queue = None if half is None else half.get("queue")
    if queue is None or queue not in printed:
        return event
    cpu = printed[0] if printed[1] == queue else printed[1]
    fields = {name: value for name, value in event.fields if not name.startswith("printed_")}
    fields["queue"] = queue
    if cpu is not None and not cpu.startswith("-"):
        fields["cpu"] = cpu
    return replace(event, fields=labels(**fields))
