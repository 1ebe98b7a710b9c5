"""All units of an image, as its systemd would have them: files, states, dependencies, and what of it starts by itself."""

from collections.abc import Iterator
from functools import cached_property

from exhume.host.commands import shown
from exhume.host.programs import services
from exhume.host.service import Service
from exhume.host.systemd import names
from exhume.host.systemd.cgroups import own_cgroups
from exhume.host.systemd.conditions import judge
from exhume.host.systemd.dependencies import triggered
from exhume.host.systemd.fragments import Fragments
from exhume.host.systemd.generators import model
from exhume.host.systemd.graph import Graph, build, starting
from exhume.host.systemd.manager import Defaults, read_defaults
from exhume.host.systemd.places import homes, read_layout, search_path
from exhume.host.systemd.presets import Presets
from exhume.host.systemd.refused import refused, takes_down
from exhume.host.systemd.specifiers import expand
from exhume.host.systemd.start_limit import restart
from exhume.host.systemd.states import States
from exhume.host.systemd.triggers import bus_names, device_units
from exhume.host.systemd.unit_file import Sections
from exhume.host.tree import Tree
from exhume.text import from_path

BOOT = "boot"
LOGIN = "login"
GONE = "its file is not here:"
_IMPLIED = ("slice", "device", "scope", "mount", "swap")  # come into being without a file
_EXECUTES = ("ExecCondition", "ExecStartPre", "ExecStart", "ExecStartPost")


def read_units(tree: Tree, manager: str = "system") -> "Units":
    """Of the system's manager, or ("user") of the users': what all users have, and what single ones have of their own."""
    return Units(tree, manager)


class Units:
    def __init__(self, tree: Tree, manager: str = "system", home: str = "", user: str = "") -> None:
        generators = model(tree, manager)
        self.unknown = generators.unknown
        """Paths of generators that are not known: what they would start cannot be told."""
        self.generators = generators.known
        self.manager = manager
        self.user = user
        self.tree = self._tree = generators.tree
        self.layout = read_layout(self._tree, search_path(self._tree, manager, home), manager)
        self._fragments = Fragments(self._tree, self.layout)
        self._states = States(self._fragments)
        self._presets = Presets(self._tree, manager)

    @cached_property
    def defaults(self) -> Defaults:
        return read_defaults(self._tree, self.manager)

    def files(self) -> dict[str, str]:
        """Every unit file with its state: what `systemctl list-unit-files` lists."""
        return {name: self.state(name) for name in sorted(self.layout.files)}

    def state(self, name: str) -> str:
        return self._states.state(name)

    def preset(self, name: str) -> str:
        return self._presets.action(name)

    def canonical(self, name: str) -> str:
        return self._fragments.canonical(name)

    def aliases(self, name: str) -> tuple[str, ...]:
        return self._fragments.aliases(name)

    def merged(self, name: str) -> Sections:
        return self._fragments.merged(name)

    def drop_ins(self, name: str) -> tuple[str, ...]:
        return self._fragments.drop_ins(self.canonical(name))

    def path(self, name: str) -> str:
        """The file that it is read from; of a linked one where it really is; empty when there is none."""
        found = self._fragments.found(name)
        if found is None:
            return ""
        return found.target if found.target and not found.masks and not found.inside else found.path

    def real(self, path: str) -> str:
        """Where a path leads, every link on its way followed; empty if nothing is there."""
        return self._tree.real(path) or ""

    def links(self, name: str) -> tuple[str, ...]:
        """Every link that enables it or is another name of it. Links of masks are none: they keep it from starting."""
        return tuple(sorted(self._links.get(self.canonical(name), ())))

    @cached_property
    def _links(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for owned in self.layout.links.values():
            for link in owned:
                if not link.masks:
                    found.setdefault(self.canonical(link.name), set()).add(link.path)
        for name, everywhere in self.layout.files.items():
            for file in everywhere:
                if file.target and not file.masks:
                    found.setdefault(self.canonical(name), set()).add(file.path)
        return found

    @cached_property
    def graph(self) -> Graph:
        roots, extra = self._roots()
        forward, backward, missing, cut = build(self._fragments, extra, self.manager)
        dead = {name for name in missing if names.kind(name) not in _IMPLIED}
        dead |= {name for name in forward if self._fragments.masked(name)}
        started = starting(forward, roots, dead)
        return Graph(forward, backward, missing, cut, self._with_instances(self._outside(forward, dead, started)))

    def _roots(self) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
        """The target that boot isolates."""
        default = self.canonical("default.target")
        return {default: (BOOT if self.manager == "system" else LOGIN,)}, (default,)

    def _outside(
        self, forward: dict[str, dict[str, tuple[str, ...]]], dead: set[str], started: dict[str, tuple[str, ...]]
    ) -> dict[str, tuple[str, ...]]:
        """And what D-Bus and devices start, once the bus and udev do."""
        roots = dict(started)
        if not started.keys().isdisjoint(services("message-bus")):
            for unit, name in bus_names(self._tree, self.manager):
                own = self.canonical(unit)
                roots[own] = (*roots.get(own, ()), f"D-Bus name {name}")
        if self.manager == "system":
            for unit, rule in device_units(self._tree):
                own = self.canonical(unit)
                roots[own] = tuple(dict.fromkeys((*roots.get(own, ()), f"udev rule {rule}")))
        return starting(forward, {name: by for name, by in roots.items() if name in forward}, dead)

    def _with_instances(self, started: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        """A socket with Accept=yes starts an instance of its template for each connection."""
        found = dict(started)
        for name in started:
            if names.kind(name) == "socket" and names.form(made := triggered(name, self.merged(name))) == "template":
                own = self.canonical(made)
                if self._fragments.found(own) is not None and not self._fragments.masked(own):
                    found[own] = (*found.get(own, ()), name)
        return found

    def services(self) -> tuple[Service, ...]:
        """Every unit that has a file, aliases under their own name only, and every instance that something names."""
        graph = self.graph
        every = {self.canonical(name) for name in self.layout.files}
        every |= {name for name in graph.forward if names.form(name) == "instance"}
        found = [self._service(name, graph) for name in sorted(every) if self._fragments.found(name) is not None]
        if self.manager == "user" and not self.user:
            found += self._of_users()
        return tuple(found)

    def _of_users(self) -> Iterator[Service]:
        """What users have in their homes."""
        seen = set()
        for user, home in homes(self._tree):
            if home not in seen and self._tree.names(f"{home}/.config/systemd/user"):
                seen.add(home)
                own = Units(self._tree, "user", home, user)
                inside = from_path(f"{self._tree.real(home)}/")
                yield from (service for service in own.services() if service.path.startswith(inside))

    def _service(self, name: str, graph: Graph) -> Service:
        sections = self.merged(name)
        judged = judge(self._tree, name, sections)
        pulled = graph.starting.get(name, ())
        state = self.state(name) or self.state(names.template(name))
        wrong = self._wrong(name, sections)
        notes = list(self._notes(sections, wrong, judged.open, pulled))
        return Service(
            name=name,
            kind="unit" if self.manager == "system" else "user-unit",
            state=state,
            starts=bool(pulled) and not wrong,
            path=from_path(self.path(name)),
            description=expand(sections.last("Unit", "Description"), name),
            command=commands(name, sections),
            pulled_by=pulled,
            needed_by=graph.needed_by(name),
            needs=graph.needs(name),
            restart=restart(sections, self.defaults) if names.kind(name) == "service" and not wrong else None,
            cgroups=own_cgroups(sections),
            conditions=judged.failing,
            preset=self.preset(name) if state in ("enabled", "disabled", "enabled-runtime", "indirect") else "",
            notes=tuple(notes),
            aliases=self.aliases(name),
        )

    def _wrong(self, name: str, sections: Sections) -> str:
        """Why it cannot start, whoever pulls it in; empty if it can, or is masked."""
        if self._fragments.masked(name):
            return ""
        if sections.broken:
            if self._tree.entry(self.path(name)) is None:
                return f"{GONE} {from_path(self.path(name))}"
            return f"systemd refuses the file: {sections.broken}"
        found = self._fragments.found(name)
        modelled = found is not None and found.place.role == "generator"  # without what it runs, which nothing here asks for
        why = "" if modelled else refused(name, sections)
        return f"systemd refuses it: {why}" if why else ""

    def _notes(self, sections: Sections, wrong: str, open_: tuple[str, ...], pulled: tuple[str, ...]) -> Iterator[str]:
        if wrong:
            yield wrong
        if self.user:
            yield f"of the user {from_path(self.user)}"
        yield from takes_down(sections)
        if open_:
            yield f"cannot be decided here: {', '.join(open_)}"
        if pulled and all(by.startswith("D-Bus name ") for by in pulled):
            yield "starts only when somebody asks for its name on D-Bus"


def commands(name: str, sections: Sections) -> tuple[str, ...]:
    """What it runs, a line each, without what looks like a secret; ExecStart= first."""
    if names.kind(name) != "service":
        return ()
    keys = ("ExecStart", *(key for key in _EXECUTES if key != "ExecStart"))
    return tuple(shown(expand(line.lstrip("-@:+!|"), name)) for key in keys for line in sections.lines("Service", key))
