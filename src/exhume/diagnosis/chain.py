"""The causal chain: which finding follows from which, by the rules of the kinds, each link with its own evidence.

No evidence, no accusation: a link whose evidence is only that both were there at once says so and carries a low number.
"""

from collections.abc import Sequence

from exhume.diagnosis.findings.kind import Link
from exhume.diagnosis.findings.model import SEVERITIES, Facts, Finding, of
from exhume.diagnosis.findings.registry import CAUSES, PAINS, RULES, SYMPTOMS

# Below this confidence no culprit is named: the chain is shown as possible.
ACCUSES = 0.5
# A link below this is not evidence enough to go on from.
WEAKEST = 0.25
# What a chain may end in, the worst last: what a node suffers from, after what merely hurts by being there.
_ENDS = (*reversed(PAINS), *SYMPTOMS)

Chain = tuple[Link, ...]


def strongest(findings: Sequence[Finding[Facts]]) -> Chain:
    """The chain that reaches the worst symptom, names a cause surely enough to accuse it, and explains most. A lone finding is
    no chain."""
    return max((chain for chain in chains(findings) if len(chain) > 1), key=rank, default=())


def chains(findings: Sequence[Finding[Facts]]) -> list[Chain]:
    """All of them, from and to something serious; in between may be what is not serious by itself."""
    found = []
    for finding in findings:
        if finding.severity != "info":
            found += [chain for chain in _from(Link(finding, "", 1.0), findings) if chain[-1].finding.severity != "info"]
    return found


def confidence(chain: Chain) -> float:
    """Of the chain as a whole: every link must hold."""
    product = 1.0
    for link in chain[1:]:
        product *= link.confidence
    return product


def accuses(chain: Chain) -> bool:
    return bool(chain) and chain[0].finding.kind in CAUSES and confidence(chain) >= ACCUSES


def rank(chain: Chain) -> tuple[bool, int, bool, int, int, float]:
    """What a chain is worth: whether it ends in a symptom, how bad; whether it accuses; how bad its end is; how much of it
    there is, and how sure it is."""
    if not chain:
        return False, -1, False, -1, 0, 0.0
    end = chain[-1].finding
    reached = _ENDS.index(end.kind) if end.kind in _ENDS else -1
    symptom = end.kind in SYMPTOMS
    severity = SEVERITIES.index(end.severity)
    return symptom, reached if symptom else -1, accuses(chain), severity, len(chain), confidence(chain)


def _from(here: Link, findings: Sequence[Finding[Facts]]) -> list[Chain]:
    found: list[Chain] = [(here,)]
    finding = here.finding
    for rule in RULES.get(finding.kind, ()):
        for effect in of(findings, rule.effect):
            if (judged := rule.judge(finding, effect)) is not None and judged[0] >= WEAKEST:
                sure, because = judged
                found.extend((here, *rest) for rest in _from(Link(effect, because, sure, rule.disproof), findings))
    return found
