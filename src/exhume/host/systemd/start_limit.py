"""Whether a service that fails again and again is ever given up: the arithmetic of the start limit.

systemd counts starts in a window that opens with the first (ratelimit_below(), src/basic/ratelimit.c): the start after the
burst is refused when it comes within the interval. Starts that are a period P apart are refused, then, if burst x P fits into
the interval. A window that is over opens anew, with nothing carried over: what does not fit once never will.
"""

import math
import posixpath
from dataclasses import dataclass
from typing import Final

from exhume.host.quantities import SECOND, duration, timespan_s
from exhume.host.service import Restart
from exhume.host.systemd.manager import Defaults, whole
from exhume.host.systemd.unit_file import Sections, split

ACCURACY_S: Final = 0.25
"""How late a restart may come: the accuracy of a timer that asks for none (DEFAULT_ACCURACY_USEC, src/libsystemd/sd-event)."""
_STEPS_SINCE: Final = 254  # RestartSteps=, RestartMaxDelaySec=: NEWS of systemd 254
_MOST_STEPS: Final = 10_000
POLICIES: Final = {
    "no": "ends in a way that is listed to start it again",
    "on-success": "ends cleanly",
    "on-failure": "fails",
    "on-abnormal": "is ended by a signal, a timeout or its watchdog",
    "on-abort": "is ended by a signal that it did not ask for",
    "on-watchdog": "is ended by its watchdog",
    "always": "ends, however it does",
}


@dataclass(frozen=True, slots=True)
class Limit:
    """The numbers that decide. `steps` is how many restarts the delay takes to grow from `delay_s` to `longest_s`."""

    delay_s: float
    burst: int
    interval_s: float
    steps: int = 0
    longest_s: float = math.inf
    start_s: float = 0.0
    """What each start takes at least, before it fails."""

    def delay(self, restarts: int) -> float:
        """service_restart_usec_next(), src/core/service.c: it grows by the same factor each time."""
        if not self.steps or math.isinf(self.longest_s) or self.delay_s >= self.longest_s or restarts == 0 or not self.delay_s:
            return self.delay_s
        if restarts >= self.steps:
            return self.longest_s
        return self.delay_s * math.pow(self.longest_s / self.delay_s, restarts / self.steps)

    @property
    def off(self) -> bool:
        return self.interval_s <= 0 or self.burst <= 0

    def bites(self, late_s: float = 0.0) -> bool:
        """Whether some start is refused when every start fails at once and every restart comes so much late."""
        if self.off:
            return False
        if self._holds(self.delay(0) + self.start_s + late_s) and not self.steps:
            return True
        if self.steps:
            return self._growing(late_s)
        return False

    def _holds(self, period_s: float) -> bool:
        # Starting takes some time, however short: what fits exactly does not fit.
        return math.isinf(self.interval_s) or self.burst * period_s < self.interval_s

    def _growing(self, late_s: float) -> bool:
        now = begin = 0.0
        count = 1
        for restarts in range(min(self.steps, _MOST_STEPS) + 1):
            now += self.delay(restarts) + self.start_s + late_s
            if now - begin > self.interval_s:
                begin, count = now, 1
            elif count < self.burst:
                count += 1
            else:
                return True
        return self._holds(self.delay(self.steps) + self.start_s + late_s)


def restart(sections: Sections, defaults: Defaults) -> Restart | None:
    """Of a service that comes back by itself; None for one that does not (Restart=no)."""
    policy = next((value for value in reversed(sections.all("Service", "Restart")) if value in POLICIES), "no")
    forced = " ".join(sections.words("Service", "RestartForceExitStatus"))
    if policy == "no" and not forced:
        return None
    limit, notes = _limit(sections, defaults)
    if forced:
        notes.append(f"{forced} always starts it again (RestartForceExitStatus=)")
    if policy in ("on-failure", "on-success") and (clean := " ".join(sections.words("Service", "SuccessExitStatus"))):
        notes.append(f"{clean} counts as a clean end (SuccessExitStatus=)")
    prevent = " ".join(sections.words("Service", "RestartPreventExitStatus"))
    endless, why = _judge(policy, limit, sections)
    if prevent and endless:
        notes.append(f"only {prevent} ends it (RestartPreventExitStatus=)")
    why = "; ".join((why, *notes))
    return Restart(policy, limit.delay_s, limit.burst, limit.interval_s, endless, f"{why[:1].upper()}{why[1:]}.", prevent)


def _judge(policy: str, limit: Limit, sections: Sections) -> tuple[bool, str]:
    if sections.last("Service", "Type") == "oneshot" and policy in ("always", "on-success"):
        return False, f"systemd refuses a service of Type=oneshot with Restart={policy}"  # service_verify(), src/core/service.c
    when = f"it is started again whenever it {POLICIES[policy]}"
    if math.isinf(limit.delay_s):
        return False, f"{when}, but RestartSec=infinity never comes"
    if limit.off:
        return True, f"{when}, and the start limit is switched off ({_off(limit)}): nothing ever stops it"
    period = limit.delay_s + limit.start_s
    count, window = _starts(limit), duration(limit.interval_s * SECOND)
    every = f"a start every {duration(period * SECOND)}" if period else "starts without a pause"
    if limit.steps:
        first, later = duration(limit.delay_s * SECOND), duration(limit.longest_s * SECOND)
        every = f"starts {first} apart at first and {later} after {limit.steps} restarts"
    made = f"makes {count:,} in {window}" if not limit.steps and math.isfinite(count) and count < 1e6 else f"within {window}"
    if not limit.bites():
        return True, f"{when}; {every} {made}, and the limit is {limit.burst:,}: it never bites"
    if not limit.bites(ACCURACY_S):
        late = f"restarts come up to {duration(ACCURACY_S * SECOND)} late, which is enough for it never to bite"
        return True, f"{when}; {every} {made}, and the limit is {limit.burst:,}, but {late}"
    return (
        False,
        f"{when}; {every} {made} and the limit is {limit.burst:,}: it stops after {limit.burst:,} starts{_unless(limit)}",
    )


def _starts(limit: Limit) -> float:
    """How many starts fall into one window, the one that opens it among them."""
    period = limit.delay_s + limit.start_s
    if not period or math.isinf(limit.interval_s):
        return math.inf
    return max(1, math.ceil(limit.interval_s / period))


def _unless(limit: Limit) -> str:
    if math.isinf(limit.interval_s) or limit.steps:
        return ""
    spare = limit.interval_s / limit.burst - limit.delay_s - limit.start_s
    return f", unless each of them lasts {duration(spare * SECOND)} or longer"


def _off(limit: Limit) -> str:
    return "StartLimitIntervalSec=0" if limit.interval_s <= 0 else "StartLimitBurst=0"


def _limit(sections: Sections, defaults: Defaults) -> tuple[Limit, list[str]]:
    """The settings by their names of today and of old (load-fragment-gperf.gperf.in), the last of them, and what is amiss."""
    interval, burst = defaults.interval_s, defaults.burst
    delay, notes = defaults.restart_s, []
    steps, longest = 0, math.inf
    for section, key, value in sections.assignments:
        if (section, key) in _INTERVALS:
            interval = _span(value, interval)
        elif (section, key) in (("Unit", "StartLimitBurst"), ("Service", "StartLimitBurst")):
            burst = whole(value, burst)
        elif (section, key) == ("Service", "StartLimitIntervalSec"):
            notes.append("StartLimitIntervalSec= stands in [Service], where systemd passes it over")
        elif section != "Service":
            continue
        elif key == "RestartSec":
            delay = _span(value, delay)
        elif key == "RestartSteps" and not 0 < defaults.version < _STEPS_SINCE:
            steps = whole(value, steps)
        elif key == "RestartMaxDelaySec":
            longest = _span(value, longest)
    if not steps or longest <= delay:
        steps, longest = 0, math.inf
    return Limit(delay, burst, interval, steps, longest, _slept(sections)), notes


def _span(value: str, default: float) -> float:
    span = timespan_s(value)
    return default if span is None else span


_INTERVALS = {("Unit", "StartLimitIntervalSec"), ("Unit", "StartLimitInterval"), ("Service", "StartLimitInterval")}


def _slept(sections: Sections) -> float:
    """What each start takes at least: the `sleep` commands before the service's own."""
    total = 0.0
    for line in sections.lines("Service", "ExecStartPre"):
        words = split(line)
        if words and posixpath.basename(words[0].lstrip("-@:+!")) == "sleep":
            total += sum(timespan_s(word) or 0.0 for word in words[1:] if word != "infinity")
    return total
