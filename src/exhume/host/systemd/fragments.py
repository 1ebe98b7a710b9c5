"""Which file a unit's name stands for, under which other names it is known, and what it says with its drop-ins.

After unit_file_build_name_map() and unit_file_find_fragment(), src/basic/unit-file.c, and src/shared/dropin.c.
"""

import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property

from exhume.host.systemd import names
from exhume.host.systemd.places import Found, Layout
from exhume.host.systemd.unit_file import Sections, Text, merge, parse
from exhume.host.tree import Tree

MOST_HOPS = 8  # FOLLOW_MAX, src/basic/unit-file.c
_EMPTY = Sections({})


class Fragments:
    def __init__(self, tree: Tree, layout: Layout) -> None:
        self.tree = tree
        self.layout = layout
        self._texts: dict[str, Text] = {}
        self._merged: dict[str, Sections] = {}
        self._canonical: dict[str, str] = {}
        self._found: dict[str, Found | None] = {}

    @cached_property
    def _ids(self) -> dict[str, Found | str]:
        """Every name that is there: what it is found as, or the name that it is an alias of."""
        ids: dict[str, Found | str] = {}
        for name, everywhere in self.layout.files.items():
            for found in everywhere:
                target = posixpath.basename(found.target)
                if not found.target or not found.inside or target == name:
                    ids[name] = found
                elif fitting(name, target):
                    ids[name] = target
                else:
                    continue  # a link that systemd rejects does not hide what is in the places after
                break
        return ids

    @cached_property
    def _other_names(self) -> dict[str, tuple[str, ...]]:
        others: dict[str, list[str]] = {}
        for name in self._ids:
            real = self.canonical(name)
            if real != name:
                others.setdefault(real, []).append(name)
        return {name: tuple(sorted(found)) for name, found in others.items()}

    def known(self) -> Iterator[str]:
        return iter(self._ids)

    def canonical(self, name: str) -> str:
        """The unit's own name: aliases followed, an instance of a template's alias made one of the template."""
        own = self._canonical.get(name)
        if own is None:
            own = self._canonical[name] = self._follow(name)
        return own

    def _follow(self, name: str) -> str:
        own = name
        for _ in range(MOST_HOPS):
            step = self._ids.get(own)
            if isinstance(step, str):
                target = step
                if names.form(own) == "instance" and names.form(target) == "template":
                    target = names.with_instance(target, names.instance(own))
            elif step is None and (template := names.template(own)) and isinstance(alias := self._ids.get(template), str):
                target = names.with_instance(alias, names.instance(own)) if names.form(alias) == "template" else alias
            else:
                return own
            if target == own:
                return own
            own = target
        return name  # goes round in circles: nobody's alias

    def aliases(self, name: str) -> tuple[str, ...]:
        own = self.canonical(name)
        found = list(self._other_names.get(own, ()))
        if template := names.template(own):
            others = self._other_names.get(template, ())
            found += [names.with_instance(other, names.instance(own)) for other in others if names.form(other) == "template"]
        return tuple(sorted(set(found) - {own}))

    def found(self, name: str) -> Found | None:
        """The file, or the link that stands for one, that the unit is loaded from."""
        own = self.canonical(name)
        if own not in self._found:
            self._found[own] = self._find(own)
        return self._found[own]

    def _find(self, own: str) -> Found | None:
        for candidate in (own, names.template(own)):
            step = self._ids.get(candidate) if candidate else None
            if isinstance(step, str):
                step = self._ids.get(self.canonical(candidate))
            if isinstance(step, Found):
                return step
        return None

    @cached_property
    def mounts(self) -> dict[str, str]:
        """The mount units that have a file, by what they are mounted at."""
        return {names.to_path(name): name for name in self._ids if names.kind(name) == "mount" and not self.masked(name)}

    @cached_property
    def ranks(self) -> dict[str, int]:
        """Which place comes before which."""
        return {place.path: number for number, place in enumerate(self.layout.places)}

    def masked(self, name: str) -> bool:
        found = self.found(name)
        return found is not None and found.masks

    def merged(self, name: str) -> Sections:
        own = self.canonical(name)
        if own not in self._merged:
            self._merged[own] = self._merge(own)
        return self._merged[own]

    def _merge(self, name: str) -> Sections:
        found = self.found(name)
        if found is not None and found.masks:
            return _EMPTY
        texts = [self.text(found.path)] if found is not None else [Text(())]
        texts += [self.text(path) for path in self.drop_ins(name)]
        return merge(texts)

    def text(self, path: str) -> Text:
        if path not in self._texts:
            raw = self.tree.read(path)
            self._texts[path] = parse(raw) if raw is not None else Text((), "it cannot be read")
        return self._texts[path]

    def install(self, name: str, found: Found) -> Sections:
        """What [Install] is read from: the file, and the drop-ins of just that name and its template, a fault in which counts.

        So unit_file_search() of src/shared/install.c has it: prefixes, types and aliases do not matter there.
        """
        own = (name, names.template(name))
        directories = [path for each in own for path in self.layout.drop_ins.get(each, ())]
        texts = [self.text(found.path), *(self.text(path) for path in self.chosen(directories))]
        merged = merge(texts)
        return replace(merged, broken=next((text.broken for text in texts if text.broken), ""))

    def drop_ins(self, name: str) -> tuple[str, ...]:
        """The .conf files that apply, in the order of their names; an empty file hides those of the same name."""
        return self.chosen(self._drop_in_directories(name))

    def chosen(self, directories: Iterable[str]) -> tuple[str, ...]:
        """Of these directories, the .conf files that count, in the order of their names."""
        chosen: dict[str, str] = {}
        for directory in directories:
            for file in self.tree.names(directory):
                if file.endswith(".conf") and not file.startswith("."):
                    chosen.setdefault(file, f"{directory}/{file}")
        kept = []
        for _, path in sorted(chosen.items()):
            entry = self.tree.entry(path)
            if entry is not None and entry.kind == "file" and entry.size:
                kept.append(path)
        return tuple(kept)

    def _drop_in_directories(self, name: str) -> Iterator[str]:
        """Own names before the type's; within a name place by place, in a place the exact name before template and prefixes."""
        places = self.layout.drop_ins
        if not places:
            return
        for each in (name, *self.aliases(name)):
            related = [*families(each)]
            present = [(owner, places[owner]) for owner in related if owner in places]
            for place in self.layout.places:
                for _, directories in present:
                    yield from (path for path in directories if posixpath.dirname(path) == place.path)
        yield from places.get(names.kind(name), ())


def families(name: str) -> tuple[str, ...]:
    """The names whose .d, .wants and .requires directories count for a unit (unit_file_find_dirs(), src/shared/dropin.c)."""
    template = names.template(name)
    return (name, *((template,) if template else ()), *names.prefixes(name))


def fitting(name: str, target: str) -> bool:
    """Whether a link of this name may be an alias of that unit (unit_validate_alias_symlink_and_warn())."""
    if not names.valid(target) or names.kind(name) != names.kind(target) or names.kind(name) not in names.MAY_ALIAS:
        return False
    own, other = names.form(name), names.form(target)
    if own != "plain" and names.kind(name) not in names.MAY_TEMPLATE:
        return False
    if own == "instance" and other == "instance":
        return names.instance(name) == names.instance(target)
    return own == other or (own == "instance" and other == "template")
