"""Several sources of one fleet as one: nodes are the same by name, by address, or by what only one machine has. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from exhume.fleet.model import Fact, Fleet, Node
from exhume.fleet.sources_names import host, matched
from exhume.text import printable

# Facts that only one machine has, by the names that sources give them; compared without case and without what is before the
# last slash (aws:///zone-a/i-0123 is i-0123).
_UNIQUE = ("boot-id", "boot_id", "provider-id", "provider_id", "instance-id", "instance_id", "system-uuid", "product_uuid")
_ADDRESSES = ("internal-ip", "internal_ip", "address", "ip")
_MOST_NAMED = 5


def join(fleets: Sequence[Fleet]) -> Fleet:
    """The first source names the nodes; what it knows of a fact, it knows best."""
    if len(fleets) == 1:
        return fleets[0]
    whole = fleets[0]
    for other in fleets[1:]:
        whole = _two(whole, other)
    return whole


def _two(first: Fleet, second: Fleet) -> Fleet:
    pairs, renamed = _pairs(first.nodes, second.nodes)
    known = {node.name: node for node in first.nodes}
    said: dict[str, int] = {}
    alone = []
    for node in second.nodes:
        if node.name in pairs:
            name = pairs[node.name]
            known[name] = _merged(known[name], node, said)
        elif node.name in known:
            alone.append(replace(node, name=f"{node.name} ({second.source})"))
        else:
            alone.append(node)
    troubles = [*first.troubles, *second.troubles]
    if renamed:
        troubles.append(f"taken for one node by what only one machine has: {_listed(renamed)}")
    lone = len(first.nodes) - len(set(pairs.values()))
    if lone or alone:
        troubles.append(
            f"{len(pairs):,} nodes are in both {first.source} and {second.source}; {lone:,} in the first alone, "
            f"{len(alone):,} in the second alone"
        )
    if said:
        facts = [f"{printable(name, 40)} ({count:,})" for name, count in sorted(said.items(), key=lambda each: -each[1])]
        troubles.append(f"{second.source} has other values than {first.source}, which is believed, for: {_listed(facts)}")
    boots = tuple(replace(boot, node=pairs.get(boot.node, boot.node)) for boot in second.boots)
    return Fleet(
        f"{first.source} and {second.source}",
        (*known.values(), *alone),
        tuple(troubles),
        first.directory or second.directory,
        first.boots or boots,
    )


def _pairs(first: Sequence[Node], second: Sequence[Node]) -> tuple[dict[str, str], list[str]]:
    """The first's name of each node of the second, and what had to be said about it."""
    found = matched([node.name for node in second], [node.name for node in first])
    taken: dict[str, str] = {}
    for theirs, ours in list(found.items()):
        if ours in taken:  # two of theirs for one of ours: neither is sure, unless it is the very name
            del found[theirs if theirs != ours else taken[ours]]
        taken[ours] = ours if theirs == ours else taken.get(ours, theirs)
    left = [node for node in second if node.name not in found]
    free = [node for node in first if node.name not in set(found.values())]
    renamed = []
    for keys in (_addresses, _unique):
        mine = _once({key: node.name for node in free for key in keys(node)}, [key for node in free for key in keys(node)])
        for node in left:
            names = {mine[key] for key in keys(node) if key in mine}
            if node.name not in found and len(names) == 1 and (ours := names.pop()) not in found.values():
                found[node.name] = ours
                if keys is _unique:
                    renamed.append(f"{printable(node.name, 60)} is {printable(ours, 60)}")
    return found, renamed


def _once(of: Mapping[str, str], keys: Sequence[str]) -> dict[str, str]:
    counts: dict[str, int] = {}
    for key in keys:
        counts[key] = counts.get(key, 0) + 1
    return {key: name for key, name in of.items() if counts[key] == 1}


def _addresses(node: Node) -> set[str]:
    return {host(str(node.facts[key])) for key in _ADDRESSES if node.facts.get(key)} | {host(node.name)}


def _unique(node: Node) -> set[str]:
    return {value for key in _UNIQUE if (value := str(node.facts.get(key, "")).rpartition("/")[2].strip().lower())}


def _merged(ours: Node, theirs: Node, said: dict[str, int]) -> Node:
    facts: dict[str, Fact] = {**theirs.facts, **ours.facts}
    for name in theirs.facts.keys() & ours.facts.keys():
        if str(theirs.facts[name]) != str(ours.facts[name]):
            said[name] = said.get(name, 0) + 1
    sick = True if ours.sick or theirs.sick else ours.sick if ours.sick is not None else theirs.sick
    whys = [each.why for each in (ours, theirs) if each.why]
    longest = [each for node in (ours, theirs) for each in (node.exposed_s, node.uptime_s) if each is not None]
    uptime = _first(ours.uptime_s, theirs.uptime_s)
    return Node(
        ours.name,
        facts,
        sick,
        max(ours.badness, theirs.badness),
        "; ".join(dict.fromkeys(whys)),
        uptime,
        max(longest) if uptime is not None and max(longest) > uptime else None,
        _first(ours.zombies, theirs.zombies),
        _first(ours.leak_per_day, theirs.leak_per_day),
        max(ours.resets, theirs.resets),
    )


def _first(one: float | None, other: float | None) -> float | None:
    return other if one is None else one


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
