"""How the units that are accused stand: whether they run, by the manager, and whether they will after a boot, by their files.

The files are asked even where a manager runs: they are what counts then, and the manager remembers its own answer.
"""

from collections.abc import Iterable

from exhume.host.directory import Directory
from exhume.host.root import Root
from exhume.host.systemd.units import read_units
from exhume.remedy.manager import running
from exhume.remedy.proof_checklist import Unit


def states(root: Root, names: Iterable[str]) -> dict[str, Unit]:
    """Of services, timers and sockets alike. Where no manager answers nobody knows whether they run."""
    wanted = list(names)
    if not wanted:
        return {}
    manager = running(root)
    found = {}
    with Directory(root.path) as tree:
        units = read_units(tree)
        for name in wanted:
            active = manager.state(name).active if manager is not None else ""
            found[name] = Unit(active, units.state(units.canonical(name)) or "not-found")
    return found
