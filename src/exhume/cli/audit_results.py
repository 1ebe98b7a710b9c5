"""An audit in the form that pipelines' formats are made from."""

from collections.abc import Iterator

from exhume.image.audit import Audit
from exhume.image.results import Level, Result

HELP = {
    "harmful-agent": "An agent known to harm nodes, and that nothing here needs. Leave its package out of the image, or "
    "disable its units there; on a node: exhume fix NAME.",
    "crash-loop": "It is started, fails and is started again. Each round leaves something behind: exhume check says what.",
    "endless-restart": "Its restarts never end when every start fails, because the start limit (StartLimitBurst= and "
    "StartLimitIntervalSec=, systemd.unit(5)) cannot be reached. Set StartLimitIntervalSec= above burst times RestartSec=, "
    "or keep = true in the policy if it is meant so.",
    "unused-agent": "Nothing needs it and nobody uses it. Disable it in the image, or keep = true in the policy.",
    "policy-new": "It starts by itself and the policy does not list it: list it with an owner, or leave it out of the image.",
    "policy-gone": "The policy lists it and it does not start any more: take it out there, or find out who took it away.",
    "policy-past-review": "Its date is past: ask its owner whether it is still needed, and set a new one.",
    "policy-no-owner": "Nobody answers for it: name an owner in the policy.",
    "policy-not-allowed": "The policy does not allow it in this image.",
}
_LEVELS: dict[str, Level] = {"critical": "error", "warning": "warning", "info": "note"}


def results(audit: Audit, names: tuple[str, ...] = ()) -> Iterator[Result]:
    paths = {unit.service.name: unit.service.path for unit in audit.units}
    for finding in audit.findings:
        if not names or finding.subject in names:
            message = f"{finding.subject}: {finding.summary}"
            yield Result(finding.kind, _LEVELS[finding.severity], finding.subject, finding.path, message, HELP[finding.kind])
    for one in audit.drift:
        if not names or one.name in names:
            rule = f"policy-{one.kind}"
            yield Result(rule, "warning", one.name, paths.get(one.name, ""), f"{one.name}: {one.message}", HELP[rule])
