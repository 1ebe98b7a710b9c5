"""Who depends on whom, both ways, over all units that are there or that others name; and what starts by itself."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from exhume.host.systemd import names
from exhume.host.systemd.dependencies import dependencies
from exhume.host.systemd.fragments import Fragments

PULLS = ("Requires", "Wants", "BindsTo", "Upholds")
"""The kinds that start the other one with it (systemd.unit(5)); Requisite only asks whether it runs."""
NEEDS = ("Requires", "Requisite", "BindsTo", "Wants", "Upholds")
BEYOND = 4_000
"""So many names without a file of their own are followed, and as many again as there are files: templates can name ever
longer instances of themselves."""

Edges = dict[str, dict[str, tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class Graph:
    forward: Edges
    """Of each unit by kind: whom it depends on. Kinds as in unit files, and Triggers."""
    backward: Edges
    """Of each unit by kind: who depends on it that way."""
    missing: frozenset[str] = frozenset()
    """Named by others, and no file is there."""
    cut: bool = False
    """Whether there were more names than are followed."""
    starting: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What starts by itself, and by whom."""

    def of(self, name: str, *kinds: str) -> tuple[str, ...]:
        """What a unit depends on by any of these kinds."""
        return _of(self.forward, name, kinds)

    def onto(self, name: str, *kinds: str) -> tuple[str, ...]:
        """What depends on a unit by any of these kinds."""
        return _of(self.backward, name, kinds)

    def needed_by(self, name: str) -> tuple[str, ...]:
        """What would miss it: not targets, which merely gather, nor what only triggers it."""
        return tuple(other for other in self.onto(name, *NEEDS) if names.kind(other) != "target")

    def needs(self, name: str) -> tuple[str, ...]:
        """Without the slice that it runs in and the targets that everybody has."""
        return tuple(
            other
            for other in self.of(name, *NEEDS)
            if names.kind(other) != "slice" and other not in ("sysinit.target", "basic.target")
        )


def _of(edges: Edges, name: str, kinds: Iterable[str]) -> tuple[str, ...]:
    own = edges.get(name, {})
    return tuple(dict.fromkeys(other for kind in kinds for other in own.get(kind, ())))


def build(
    fragments: Fragments, extra: Iterable[str] = (), manager: str = "system"
) -> tuple[Edges, Edges, frozenset[str], bool]:
    """Forward, backward, the names without a file, and whether it was cut: every unit with a file, and whatever they name."""
    own = sorted({fragments.canonical(name) for name in fragments.known() if names.form(name) != "template"})
    queue = list(dict.fromkeys((*own, *(fragments.canonical(name) for name in extra))))
    known = set(queue)
    most = 2 * len(known) + BEYOND
    forward: Edges = {}
    backward: dict[str, dict[str, list[str]]] = {}
    for name in queue:  # grows as it goes
        by_kind: dict[str, list[str]] = {}
        for kind, other in dependencies(fragments, name, manager):
            by_kind.setdefault(kind, []).append(other)
            backward.setdefault(other, {}).setdefault(kind, []).append(name)
            if other not in known and len(known) < most:
                known.add(other)
                queue.append(other)
        forward[name] = {kind: tuple(others) for kind, others in by_kind.items()}
    missing = frozenset(name for name in known if fragments.found(name) is None)
    reverse = {name: {kind: tuple(others) for kind, others in kinds.items()} for name, kinds in backward.items()}
    return forward, reverse, missing, len(known) >= most


def starting(forward: Edges, roots: dict[str, tuple[str, ...]], dead: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """What starts when the roots do, and what pulls each in; what is dead (masked, missing) neither starts nor pulls."""
    stopped = frozenset(dead)
    pulled = {name: dict.fromkeys(by) for name, by in roots.items() if name not in stopped}
    queue = list(pulled)
    for name in queue:  # grows as it goes
        for kind in (*PULLS, "Triggers"):
            for other in forward.get(name, {}).get(kind, ()):
                if other in stopped:
                    continue
                if other not in pulled:
                    pulled[other] = {}
                    queue.append(other)
                pulled[other][name] = None
    return {name: tuple(by) for name, by in pulled.items()}
