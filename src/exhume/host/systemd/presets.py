"""What the presets say should become of a unit: enable, disable or ignore (systemd.preset(5)).

Files of all places in the order of their names, the same name once, the first place's; the first line that fits decides, and a
unit that no line fits is enabled.
"""

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from exhume.host.systemd import names
from exhume.host.tree import Tree

_PLACES = ("/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd", "/lib/systemd")
_MOST_RULES = 20_000


@dataclass(frozen=True, slots=True)
class Rule:
    action: str
    pattern: str
    instances: tuple[str, ...] = ()


class Presets:
    def __init__(self, tree: Tree, manager: str = "system") -> None:
        self._tree = tree
        self._directory = f"{manager}-preset"

    @cached_property
    def _rules(self) -> tuple[Rule, ...]:
        chosen: dict[str, str] = {}
        for place in _PLACES:
            for file in self._tree.names(f"{place}/{self._directory}"):
                if file.endswith(".preset") and not file.startswith("."):
                    chosen.setdefault(file, f"{place}/{self._directory}/{file}")
        rules: list[Rule] = []
        for _, path in sorted(chosen.items()):
            rules += parse(self._tree.read(path) or b"")
        return tuple(rules[:_MOST_RULES])

    @cached_property
    def _exact(self) -> dict[str, int]:
        """Rules without a wildcard by their name: most rules are, and there are many units."""
        found: dict[str, int] = {}
        for number, rule in enumerate(self._rules):
            if not _wild(rule.pattern):
                found.setdefault(rule.pattern, number)
        return found

    @cached_property
    def _patterns(self) -> tuple[tuple[int, str], ...]:
        return tuple((number, rule.pattern) for number, rule in enumerate(self._rules) if _wild(rule.pattern))

    def action(self, name: str) -> str:
        """enable, disable or ignore. Of an instance its template's rule counts if that names the instance or names none."""
        for candidate in (name, names.template(name)):
            number = self._first(candidate) if candidate else None
            if number is not None:
                rule = self._rules[number]
                if candidate == name or not rule.instances or names.instance(name) in rule.instances:
                    return rule.action
        return "enable"

    def _first(self, name: str) -> int | None:
        exact = self._exact.get(name)
        for number, pattern in self._patterns:
            if exact is not None and number > exact:
                break
            if fnmatch.fnmatchcase(name, pattern):
                return number
        return exact


def _wild(pattern: str) -> bool:
    return any(character in pattern for character in "*?[")


def parse(raw: bytes) -> Iterable[Rule]:
    """`enable PATTERN [INSTANCE ...]`; what is no rule is passed over (read_presets(), src/shared/install.c)."""
    for line in raw.decode("utf-8", "surrogateescape").splitlines():
        words = line.split()
        if len(words) > 1 and words[0] in ("enable", "disable", "ignore"):
            yield Rule(words[0], words[1], tuple(words[2:]) if words[0] == "enable" else ())
