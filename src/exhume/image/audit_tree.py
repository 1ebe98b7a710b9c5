"""The audit of a tree from beginning to end: inventory, catalogue and the facts that decide what is needed there."""

from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime

from exhume.host import catalogue, needs
from exhume.host.tree import Tree
from exhume.image.audit import Audit, Live, audit
from exhume.image.inventory import take_inventory
from exhume.image.policy import Policy


def audit_tree(
    tree: Tree,
    policy: Policy | None = None,
    live: Live | None = None,
    troubles: Iterable[str] = (),
    progress: Callable[[float], None] = lambda part: None,
    today: date | None = None,
) -> Audit:
    """While the tree is open: what is needed depends on files that are only read when a thing that wants them is there."""
    inventory = take_inventory(tree, progress)
    facts = needs.facts(tree, inventory.services, live.used if live is not None else ())
    return audit(inventory, catalogue.load(), facts, today or datetime.now(UTC).date(), policy, live, troubles)
