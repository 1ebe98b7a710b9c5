"""How many nodes may be out of service at once by our hand, and when to stop because the last ones did not come back. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from exhume.cluster.cordon import Mark, mark_of, ready
from exhume.cluster.document import Document, text_in
from exhume.errors import Refused
from exhume.host.quantities import SECOND, duration
from exhume.text import printable

# A large node takes some ten minutes through firmware, boot and device plugins.
BACK_S = 1800.0


@dataclass(frozen=True, slots=True)
class FleetLimits:
    max_at_once: int = 1
    """Nodes that are cordoned by us at a time; those in quarantine do not count: they are meant to stay."""
    pause_when_failed: int = 1
    """So many of ours that did not come back, and no further node is taken out; 0: never pause."""
    back_s: float = BACK_S
    """How long one may be out and not Ready before it counts as lost."""


def ours(nodes: Sequence[Document], quarantined: bool = False) -> list[tuple[Mark, Document]]:
    """Nodes that we hold, the first first."""
    from exhume.cluster.cordon import tainted

    held = [(mark, node) for node in nodes if (mark := mark_of(node)) is not None and tainted(node) <= quarantined]
    return sorted(held, key=lambda one: (one[0].time_s, _name(one[1])))


def refuse_more(nodes: Sequence[Document], name: str, limits: FleetLimits, now_s: float) -> None:
    """Whether `name` may be held too. Asked again after it was marked: of two at the same moment the later one, by the API
    server's own order, sees the other; both may, and then both step back, which is safe."""
    held = ours(nodes)
    others = [node for _, node in held if _name(node) != name]
    lost = [node for mark, node in held if _name(node) != name and not ready(node) and now_s - mark.time_s > limits.back_s]
    if limits.pause_when_failed and len(lost) >= limits.pause_when_failed:
        raise Refused(
            f"node {printable(name)} stays in service: {_names(lost)} did not come back within "
            f"{duration(limits.back_s * SECOND)}; see to that first (exhume node status)"
        )
    if len(others) >= limits.max_at_once:
        raise Refused(
            f"node {printable(name)} stays in service: {_names(others)} {'is' if len(others) == 1 else 'are'} out already, "
            f"and at most {limits.max_at_once} may be at once (--max-at-once)"
        )


def _name(node: Document) -> str:
    return text_in(node, "metadata", "name")


def _names(nodes: Sequence[Document]) -> str:
    told = ", ".join(printable(_name(node)) for node in nodes[:3])
    return told + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")
