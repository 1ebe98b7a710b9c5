"""The catalogue of programs: mistakes are named by file and place, lookups by role agree with the whole, and no other module
holds a list of programs."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.errors import UsageError
from exhume.host import programs
from exhume.host.catalogue import Catalogue
from exhume.host.programs import ROLES, Role, as_processes, commands, every, paths, protected_unit, read, services, with_role
from exhume.host.service import Service
from tests.examples import examples

WHOLE = """
[[program]]
id = "one"
name = "One"
purpose = "Does it."
source = "its README"
units = ["one.service", "one@*.service"]
packages = ["one"]
needed_if = [{ path = "/etc/one", contains = "^key=" }, { kubernetes = true }]
harm = [{ severity = "info", text = "Some.", source = "somewhere" }]
"""


def test_what_is_not_said_of_turning_off_is_plain() -> None:
    (agent,) = read(WHOLE, "my.toml")
    assert agent.off.units == ("one.service",)
    assert agent.off.packages == ("one",)
    assert agent.group == "my"
    assert Catalogue([agent]).recognise(Service("one@x.service", "unit", "enabled", True)) is agent


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('units = ["one', 'unit = ["one', r"my.toml: program one.unit is not known, did you mean units\?"),
        ('name = "One"', "name = 1", "my.toml: program one.name must be a text"),
        ('"one.service", ', '"one.service", 3, ', "my.toml: program one.units must be a list of texts"),
        ('"one.service", ', '"*", ', "my.toml: program one.units: .* would match almost anything"),
        ("{ kubernetes = true }", "{ kubernetes = false }", r"my.toml: program one.needed_if\[2\].kubernetes can only be true"),
        ("{ kubernetes = true }", '{ cloud = "moon" }', r"program one.needed_if\[2\].cloud must be one of aws"),
        (
            "{ kubernetes = true }",
            '{ clouds = "aws" }',
            r"program one.needed_if\[2\].clouds is not known, did you mean cloud\?",
        ),
        ("{ kubernetes = true }", '{ contains = "x" }', r"program one.needed_if\[2\] needs a word"),
        ("{ kubernetes = true }", '{ filled = "etc" }', r"program one.needed_if\[2\].filled must begin with a slash"),
        ('"^key="', '"("', r"program one.needed_if\[1\].contains is no regular expression"),
        ('"info"', '"bad"', r"program one.harm\[1\].severity must be one of info"),
        (', source = "somewhere"', "", r"program one.harm\[1\].source must be a text"),
        ('id = "one"', 'id = "One!"', r"program\[1\].id must be of small letters"),
        ("[[program]]", "[[programs]]", "programs is not known, did you mean program"),
        ("[[program]]", "[program]", "program must be a list of tables"),
        (
            'source = "its README"',
            'source = "its README"\nprotected = true\noff = {}',
            "is protected and says how to turn it off",
        ),
        ("[[program]]", "[[program", "my.toml is not TOML"),
        (
            'source = "its',
            'roles = ["kubelets"]\nsource = "its',
            r"program one.roles: kubelets is not known, did you mean kubelet\?",
        ),
        ('purpose = "Does it."\n', "", "program one needs both a purpose and something by which it is recognised"),
        ('source = "its', 'starts = [{ labels = ["x"] }]\nsource = "its', r"program one.starts\[1\].why must be a text"),
    ],
)
def test_a_mistake_is_named_by_its_place(old: str, new: str, message: str) -> None:
    assert old in WHOLE
    with pytest.raises(UsageError, match=message):
        read(WHOLE.replace(old, new, 1), "my.toml")


def test_two_of_one_id_are_a_mistake() -> None:
    with pytest.raises(UsageError, match="is there twice"):
        read(WHOLE + WHOLE, "my.toml")


@settings(max_examples=examples(150))
@given(
    st.text(max_size=100)
    | st.builds(lambda where, noise: WHOLE[:where] + noise + WHOLE[where:], st.integers(0, len(WHOLE)), st.text(max_size=6))
)
def test_any_file_is_a_catalogue_or_a_mistake_with_its_name(text: str) -> None:
    try:
        found = read(text, "my.toml")
    except UsageError as mistake:
        said = str(mistake)
    else:
        said = "my.toml"
        assert all(agent.id for agent in found)
    assert said.startswith("my.toml")


@pytest.mark.parametrize("role", ROLES)
def test_a_lookup_by_role_finds_what_the_whole_catalogue_has(role: Role) -> None:
    found = [program for program in every() if role in program.roles]
    assert found
    assert list(with_role(role)) == found
    assert commands(role) == {command for program in found for command in program.commands}
    assert services(role) == tuple(unit for program in found for unit in program.services)


def test_a_role_without_programs_is_an_error_and_not_an_empty_protection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_files", lambda: ())
    with_role.cache_clear()
    with pytest.raises(LookupError, match="keep-running"):
        with_role("keep-running")


def test_every_program_is_one_entrys_and_has_its_data() -> None:
    known = every()
    for kind in ("id", "commands", "unit_names", "services"):
        values = [getattr(program, kind) for program in known]
        counted = Counter(values if kind == "id" else (name for names in values for name in names))
        assert not [name for name, number in counted.items() if number > 1], kind
    for program in known:
        assert program.commands or program.services or program.unit_names or program.purpose, program.id
        assert bool(program.starts) == ("starts-containers" in program.roles), program.id
        assert bool(program.cgroups) == ("makes-cgroups" in program.roles), program.id
        assert bool(program.code_options) == ("interpreter" in program.roles), program.id
        assert bool(program.unit_names) <= ("keep-running" in program.roles), program.id
        assert all("/" not in command and not command.endswith(".service") for command in program.commands)
        assert all(pattern == pattern.casefold() for pattern in program.unit_names)
        assert program.source.strip() == program.source
        assert "://" not in program.source


def test_kubelets_and_runtimes_are_kept_running() -> None:
    kept = {unit for program in with_role("kubelet") for unit in program.services}
    assert all(protected_unit(unit) for unit in kept)
    assert all(protected_unit(unit) for unit in services("runtime") if unit not in ("buildkit.service",))


def test_paths_and_names_of_processes() -> None:
    assert paths("kubelet")[0] == "/usr/bin/kubelet"
    assert "/usr/bin/cri-dockerd" not in paths("dockerd")
    assert paths("no-such-program") == ()
    assert "nvidia-persiste" in as_processes("keep-running")
    assert "containerd" in as_processes("runtime")


# Names that are the form of something else; the lab makes up programs of known names.
_GRAMMAR = {
    "remedy/protected_commands.py": "options of programs that run others, by which their command lines are read",
    "host/owners.py": "how runtimes begin the names of cgroups",
    "recording/well_known.py": "parts of cgroup paths",
    "image/places.py": "names of directories",
    "cli/completion.py": "shells that completions are written for",
}
_SOURCE = Path(programs.__file__).parents[1]


def _held(tree: ast.Module) -> Iterator[tuple[int, list[str]]]:
    """Collections of constants, and constants that are split into one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict):
            elements = node.keys if isinstance(node, ast.Dict) else node.elts
            yield node.lineno, [one.value for one in elements if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "split":
            text = node.func.value
            yield node.lineno, text.value.split() if isinstance(text, ast.Constant) and isinstance(text.value, str) else []


def test_no_other_module_holds_a_list_of_programs() -> None:
    known = every()
    daemons = {name for program in known if program.roles - {"common", "waits"} for name in program.commands}
    daemons |= {program.id for program in known if program.purpose}
    units = {unit for program in known for unit in (*program.services, *program.units)}
    locations = {path for program in known for path in program.executables}
    found = []
    for path in sorted(_SOURCE.rglob("*.py")):
        place = path.relative_to(_SOURCE).as_posix()
        if place in _GRAMMAR or place.startswith("lab/"):
            continue
        for line, values in _held(ast.parse(path.read_text())):
            names = {value for value in values if value in daemons or value in units or value in locations}
            if len(names) > 1:
                found.append(f"{place}:{line}: {sorted(names)}")
    assert not found, "\n".join(found)
