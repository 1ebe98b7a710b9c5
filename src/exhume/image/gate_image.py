"""The part of the gate that needs no running node: what an image will start, held against its policy and what is known."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from exhume.image.gate_model import Blamed, Check, Status
from exhume.text import printable

if TYPE_CHECKING:
    from exhume.image.audit import Audit
    from exhume.image.policy import Policy

HARMFUL, UNLISTED, UNREAD, GENERATORS = "harmful-services", "unlisted-services", "unread", "generators"
_MOST_UNREAD = 20
_UNREAD_HELP = "What was not read may start anything. Read the image as root, and mend what is damaged in it."
_HARMFUL_HELP = (
    "It is known to harm nodes, or can restart for ever because no start limit can stop it: disable it in the image, or let "
    "the policy keep it if somebody answers for it."
)
_UNLISTED_HELP = 'Everything that starts by itself has an owner: list it in the policy, [agents."NAME"], or disable it.'
_GENERATORS_HELP = (
    "A generator makes units at boot, and nothing in an image is run: see what it makes on a node that has booted, in "
    '/run/systemd/generator, and list the generator in the policy, [agents."/usr/lib/systemd/system-generators/NAME"].'
)
# What the policy must not let pass, and what somebody should look at. What is gone from an image harms nobody.
_FAILS, _WARNS = ("new", "not-allowed"), ("past-review", "no-owner")


def image_checks(audit: "Audit", policy: "Policy | None") -> tuple[Check, ...]:
    if not any(service.starts for service in audit.inventory.services):  # it does not even boot: half an image, or none
        why = f": {printable(audit.troubles[0])}" if audit.troubles else "; is it the root of an image?"
        nothing = f"nothing was found there that starts by itself{why}"
        names = (HARMFUL,) if policy is None else (HARMFUL, UNLISTED)
        return tuple(Check(name, "unknown", nothing, limit=0) for name in names)
    listed = () if policy is None else (_unlisted(audit),)
    return (_harmful(audit), *listed, *_unread(audit), *_generators(audit, policy))


def _generators(audit: "Audit", policy: "Policy | None") -> tuple[Check, ...]:
    """Those that are not known may start anything, unless somebody answers for them; no check where all are known."""
    odd = [path for path in audit.inventory.unknown if policy is None or policy.find(path) is None]
    if not odd:
        return ()
    many = f"{len(odd):,} generators" if len(odd) > 1 else "one generator"
    said = f"what {many} would start at boot cannot be told from the files: {', '.join(map(printable, odd[:3]))}"
    blamed = tuple(Blamed(path, f"{printable(path)}: what it makes at boot is not known", path) for path in odd)
    return (Check(GENERATORS, "warning", said, len(odd), 0, blamed, _GENERATORS_HELP),)


def _unread(audit: "Audit") -> tuple[Check, ...]:
    """What could not be read may hold anything: it is no pass, and no check at all where everything was read."""
    troubles = audit.inventory.troubles
    if not troubles:
        return ()
    blamed = tuple(Blamed("", printable(trouble, 300)) for trouble in troubles[:_MOST_UNREAD])
    status: Status = "unknown" if audit.unread else "warning"
    many = f"{len(troubles):,} places" if len(troubles) > 1 else "one place"
    said = f"{many} could not be read, or not as a whole: {printable(troubles[0], 200)}"
    return (Check(UNREAD, status, said, len(troubles), 0, blamed, _UNREAD_HELP),)


def _harmful(audit: "Audit") -> Check:
    starts = sum(unit.service.starts for unit in audit.units)
    told = [
        (finding.severity, Blamed(finding.subject, f"{printable(finding.subject)}: {finding.summary}", finding.path))
        for finding in audit.findings
        if finding.kind in ("harmful-agent", "endless-restart")
    ]
    bad = _once(blamed for severity, blamed in told if severity == "critical")
    if bad:
        return Check(HARMFUL, "failed", _said(bad, "services harm"), len(bad), 0, bad, _HARMFUL_HELP)
    odd = _once(blamed for severity, blamed in told if severity == "warning")
    if odd:
        return Check(HARMFUL, "warning", _said(odd, "services can restart for ever"), 0, 0, odd, _HARMFUL_HELP)
    return Check(HARMFUL, "passed", f"none of {starts:,} that start by themselves is known to harm", 0, 0, help=_HARMFUL_HELP)


def _unlisted(audit: "Audit") -> Check:
    paths = {unit.service.name: unit.service.path for unit in audit.units}

    def blamed(kinds: tuple[str, ...]) -> tuple[Blamed, ...]:
        return tuple(
            Blamed(drift.name, f"{printable(drift.name)}: {drift.message}", paths.get(drift.name, ""))
            for drift in audit.drift
            if drift.kind in kinds
        )

    if bad := blamed(_FAILS):
        return Check(UNLISTED, "failed", _said(bad, "that the policy does not let pass"), len(bad), 0, bad, _UNLISTED_HELP)
    if odd := blamed(_WARNS):
        return Check(UNLISTED, "warning", _said(odd, "that somebody should look at"), 0, 0, odd, _UNLISTED_HELP)
    return Check(UNLISTED, "passed", "everything that starts by itself is listed in the policy", 0, 0, help=_UNLISTED_HELP)


def _once(every: Iterable[Blamed]) -> tuple[Blamed, ...]:
    """One sentence for each subject: the first, which is the gravest."""
    found: dict[str, Blamed] = {}
    for blamed in every:
        found.setdefault(blamed.subject, blamed)
    return tuple(found.values())


def _said(blamed: tuple[Blamed, ...], what: str) -> str:
    if len(blamed) == 1:
        return blamed[0].message
    names = ", ".join(printable(one.subject) for one in blamed[:5])
    return f"{len(blamed):,} {what}: {names}" + (f" and {len(blamed) - 5:,} more" if len(blamed) > 5 else "")
