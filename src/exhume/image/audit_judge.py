"""The judgement on one thing that runs by itself: needed, unused, harmful or unknown, with the reasons as sentences.

Harm needs no proof of idleness: the catalogue knows it, or the restart policy can loop for ever, or it does so now. But nothing
is called unused that something needs, that the policy keeps, that is protected, or that nothing proves idle; and what is needed
is not called harmful either: switching it off would be the greater harm, so its trouble is told as a finding.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from exhume.host.quantities import SECOND, counted, duration
from exhume.host.service import Service
from exhume.image.audit_evidence import Known, crash_loop, idleness, in_use, lasting, looping, names, proven_idle
from exhume.image.audit_scope import TRIGGERS, part_of_boot, runs
from exhume.text import printable

Judgement = Literal["needed", "unused", "harmful", "unknown"]
PODS = ("static-pod", "daemonset")
"""The kubelet starts them again without end, with 5 minutes between in the end: that is how pods are meant to be."""


@dataclass(frozen=True, slots=True)
class Judged:
    judgement: Judgement
    reasons: tuple[str, ...]


def judge(service: Service, known: Known) -> Judged:
    """One thing by itself. What its triggers inherit is `audit.py`'s to say, which sees all of them."""
    if not active(service, known):
        return Judged("unknown", (_not_starting(service), *_latent(service, known)))
    needs, harms = tuple(needs_of(service, known)), tuple(harms_of(service, known))
    if needs:
        return Judged("needed", (*needs, *(f"but {harm}" for harm in harms)))
    if harms:
        return Judged("harmful", (*harms, *_alone(service), *idleness(service, known)))
    if needing(service):
        return Judged("unknown", tuple(_evidence(service, known)))  # by whom it could be needed, if not now
    if known.not_needed_here and not known.unseen:
        return Judged("unused", (known.not_needed_here, *_alone(service), *idleness(service, known)))
    if proof := proven_idle(service, known):
        return Judged("unused", (proof, *_alone(service)))
    return Judged("unknown", tuple(_evidence(service, known)))


def active(service: Service, known: Known) -> bool:
    """Whether it starts by itself here, or runs already, whoever started it."""
    running = known.life is not None and (known.life.active not in ("", "inactive", "failed") or looping(known.life))
    return service.starts or running


def needs_of(service: Service, known: Known) -> Iterator[str]:
    """Every reason why it must stay, the strongest first."""
    if known.listed is not None and known.listed.keep:
        whose = f" ({printable(known.listed.owner)})" if known.listed.owner.strip() else ""
        why = f": {printable(known.listed.purpose)}" if known.listed.purpose.strip() else ""
        yield f"the policy keeps it{whose}{why}"
    if known.protected:
        whose = f" ({printable(known.agent)})" if known.agent else ""
        yield f"it is protected{whose}: without it the node, its network or the way to it is lost"
    if others := needing(service, known.weak):
        yield f"{names(others)} {'need' if len(others) > 1 else 'needs'} it"
    if known.runs:
        yield f"it runs {names(known.runs)}"
    if known.needed_here:
        yield known.needed_here
    if part_of_boot(service):
        yield "it is a part of booting itself: no one enabled it"
    elif not runs(service):
        yield "it runs nothing of its own, it puts others in order"
    if used := in_use(known):
        yield used


def needing(service: Service, weak: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Who would miss it; that its own timer, socket or path starts it is no need."""
    own = {name for name in service.pulled_by if name.endswith(TRIGGERS)}
    return tuple(name for name in service.needed_by if name not in own and name not in weak)


def harms_of(service: Service, known: Known) -> Iterator[str]:
    """Every harm that it does or can come to, the certain ones first."""
    if known.life is not None and looping(known.life):
        yield crash_loop(known.life)
    elif known.loop:
        yield known.loop
    if held_back(service, known):
        return  # it will not start here, so it cannot do what it would do
    endless = endless_restart(service)
    if endless and service.kind not in PODS:
        yield endless
    if known.harm:
        yield known.harm


def held_back(service: Service, known: Known) -> bool:
    """Whether a condition of its own keeps it from starting here, and it does not run all the same."""
    return bool(service.conditions) and (known.life is None or known.life.active in ("", "inactive"))


def endless_restart(service: Service) -> str:
    """Why its restarts never end when every start fails, with the arithmetic; "" if something stops them."""
    restart = service.restart
    if restart is None or not restart.endless:
        return ""
    return f"it can restart for ever: {clause(restart.why) or 'nothing limits it'}"


def clause(sentence: str) -> str:
    """A sentence as the part of another: without its capital, unless that belongs to a name, and without its full stop."""
    if len(sentence) > 1 and sentence[0].isupper() and (sentence[1].islower() or sentence[1] == " "):
        sentence = sentence[0].lower() + sentence[1:]
    return sentence.removesuffix(".")


def _evidence(service: Service, known: Known) -> Iterator[str]:
    """Of what nothing is decided: what there is to decide by."""
    if known.agent:
        yield f"the catalogue knows it as {known.agent}, and not whether it is needed here"
    else:
        yield "the catalogue does not know it"
    yield from _alone(service)
    yield from service.conditions[:2]
    if service.kind in PODS:
        yield from service.notes[:3]
    if known.life is not None:
        cpu = f", {duration(known.life.cpu_s * SECOND)} of CPU time" if known.life.cpu_s >= 0 else ""
        yield f"it is {printable(known.life.active)} ({printable(known.life.sub)}){lasting(known.life)}{cpu}"
        yield from idleness(service, known)
    if known.sockets is not None and known.sockets.outgoing:
        yield f"it has {counted(known.sockets.outgoing, 'connection')} to other machines"


def _alone(service: Service) -> Iterator[str]:
    if others := needing(service):
        yield (
            f"only {names(others)} {'need' if len(others) > 1 else 'needs'} it, "
            "and what does not start, or is a part of it, does not count"
        )
    elif service.kind in ("unit", "user-unit"):
        by = (
            f", {names(service.pulled_by)} {'start' if len(service.pulled_by) > 1 else 'starts'} it"
            if service.pulled_by
            else ""
        )
        yield f"no other unit needs it{by}"


def _not_starting(service: Service) -> str:
    if service.pulled_by and service.kind in ("unit", "user-unit") and service.notes:
        return f"{names(service.pulled_by)} would start it, but {printable(service.notes[0], 300)}"
    if service.conditions and service.kind not in ("unit", "user-unit"):
        return f"nothing starts it by itself: {printable(service.conditions[0], 300)}"
    if service.name.endswith(TRIGGERS) or runs(service):
        return f"nothing starts it by itself ({printable(service.state) or 'disabled'})"
    return "nothing pulls it in"


def _latent(service: Service, known: Known) -> Iterator[str]:
    """What it would do if somebody enabled it."""
    if service.state not in ("masked", "masked-runtime") and not part_of_boot(service):
        for harm in harms_of(service, known):
            yield f"if it were started: {harm}"
