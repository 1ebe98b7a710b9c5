"""Files of the catalogue: a mistake is named by its file and its place."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.errors import UsageError
from exhume.host.catalogue import Catalogue, load
from exhume.host.catalogue_file import agents
from exhume.host.service import Service
from tests.examples import examples

WHOLE = """
[[agent]]
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
    (agent,) = agents(WHOLE.encode(), "my.toml")
    assert agent.off.units == ("one.service",)
    assert agent.off.packages == ("one",)
    assert agent.group == "my"
    assert Catalogue([agent]).recognise(Service("one@x.service", "unit", "enabled", True)) is agent


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('units = ["one', 'unit = ["one', r"my.toml: agent one.unit is not known, did you mean units\?"),
        ('name = "One"', "name = 1", "my.toml: agent one.name must be a text"),
        ('"one.service", ', '"one.service", 3, ', "my.toml: agent one.units must be a list of texts"),
        ('"one.service", ', '"*", ', "my.toml: agent one.units: .* would match almost anything"),
        ("{ kubernetes = true }", "{ kubernetes = false }", r"my.toml: agent one.needed_if\[2\].kubernetes can only be true"),
        ("{ kubernetes = true }", '{ cloud = "moon" }', r"agent one.needed_if\[2\].cloud must be one of aws"),
        ("{ kubernetes = true }", '{ clouds = "aws" }', r"agent one.needed_if\[2\].clouds is not known, did you mean cloud\?"),
        ("{ kubernetes = true }", '{ contains = "x" }', r"agent one.needed_if\[2\] needs a word"),
        ("{ kubernetes = true }", '{ filled = "etc" }', r"agent one.needed_if\[2\].filled must begin with a slash"),
        ('"^key="', '"("', r"agent one.needed_if\[1\].contains is no regular expression"),
        ('"info"', '"bad"', r"agent one.harm\[1\].severity must be one of info"),
        (', source = "somewhere"', "", r"agent one.harm\[1\].source must be a text"),
        ('id = "one"', 'id = "One!"', r"agent\[1\].id must be of small letters"),
        ("[[agent]]", "[[agents]]", "agents is not known, did you mean agent"),
        ("[[agent]]", "[agent]", "agent must be a list of tables"),
        (
            'source = "its README"',
            'source = "its README"\nprotected = true\noff = {}',
            "is protected and says how to turn it off",
        ),
        ("[[agent]]", "[[agent", "my.toml is not TOML"),
    ],
)
def test_a_mistake_is_named_by_its_place(old: str, new: str, message: str) -> None:
    assert old in WHOLE
    with pytest.raises(UsageError, match=message):
        agents(WHOLE.replace(old, new, 1).encode(), "my.toml")


def test_two_of_one_id_and_a_file_that_is_not_there_are_mistakes() -> None:
    with pytest.raises(UsageError, match="is there twice"):
        agents((WHOLE + WHOLE).encode(), "my.toml")
    with pytest.raises(UsageError, match="cannot be read"):
        load(["/nowhere/at/all.toml"])


def test_a_file_of_ones_own_adds_and_replaces(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("own") / "own.toml"
    path.write_text(WHOLE + WHOLE.replace('"one"', '"ecs-agent"', 1).replace("one", "ours"))
    own = load([str(path)])
    assert own.agents["one"].name == "One"
    assert own.agents["ecs-agent"].units == ("ours.service", "ours@*.service")


@settings(max_examples=examples(150))
@given(
    st.binary(max_size=100)
    | st.builds(
        lambda where, noise: WHOLE[:where] + noise + WHOLE[where:], st.integers(0, len(WHOLE)), st.text(max_size=6)
    ).map(lambda text: text.encode("utf-8", "replace"))
)
def test_any_file_is_a_catalogue_or_a_mistake_with_its_name(text: bytes) -> None:
    try:
        found = agents(text, "my.toml")
    except UsageError as mistake:
        said = str(mistake)
    else:
        said = "my.toml"
        assert all(agent.id for agent in found)
    assert said.startswith("my.toml")
