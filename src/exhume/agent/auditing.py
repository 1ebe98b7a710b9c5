"""What the recurring audit's report says, as numbers."""

from collections import Counter
from typing import Any

from exhume.agent.metrics import METRICS, OTHER

Values = dict[tuple[str, ...], float]
JUDGEMENTS = ("needed", "unused", "harmful", "unknown")


def units(report: dict[str, Any]) -> Values:
    """What runs by itself, by its judgement; one that is not known here is counted as unknown."""
    found = Counter(str(unit["judgement"]) for unit in report.get("units", []))
    told: Values = {(name,): float(found.pop(name, 0)) for name in JUDGEMENTS}
    told["unknown",] += sum(found.values())
    return told


def drift(report: dict[str, Any]) -> Values:
    """How far the node is from its policy, by kind; more kinds than there is room for are counted together."""
    found = Counter(str(one["kind"]) for one in report.get("drift", []))
    most = found.most_common(METRICS["exhume_audit_drift"].most)
    if len(found) > len(most):
        most = most[:-1]
    told: Values = {(kind,): float(count) for kind, count in most}
    if rest := sum(found.values()) - sum(count for _, count in most):
        told[OTHER,] = float(rest)
    return told
