"""rc.local runs at boot only if it may be executed and something on the image runs it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.image import rc_local
from tests.examples import examples
from tests.image.planted import Planted

GENERATOR = {"/usr/lib/systemd/system-generators/systemd-rc-local-generator": "#!"}
SCRIPT = "#!/bin/sh -e\n# nothing\n\nset -u\n/opt/agent --token abcdef123 &\nexit 0\n"


def test_an_executable_one_starts_and_shows_its_commands() -> None:
    (service,) = rc_local.read(Planted({**GENERATOR, "/etc/rc.local": SCRIPT}))
    assert service.starts
    assert service.kind == "rc-local"
    assert service.pulled_by == ("multi-user.target",)
    assert service.command == ("/opt/agent --token *** &",)


@pytest.mark.parametrize(
    ("files", "links", "modes", "why"),
    [
        (GENERATOR, {}, {"/etc/rc.local": 0o644}, "may not be executed"),
        ({}, {}, {}, "nothing on this image starts it"),
        (GENERATOR, {"/etc/systemd/system/rc-local.service": "/dev/null"}, {}, "masked"),
    ],
)
def test_what_keeps_it_from_starting_is_said(
    files: dict[str, str], links: dict[str, str], modes: dict[str, int], why: str
) -> None:
    (service,) = rc_local.read(Planted({**files, "/etc/rc.local": SCRIPT}, links, modes))
    assert not service.starts
    assert why in service.conditions[0]


def test_one_script_under_two_names_is_one() -> None:
    tree = Planted({**GENERATOR, "/etc/rc.d/rc.local": SCRIPT}, {"/etc/rc.local": "rc.d/rc.local"})
    assert [service.path for service in rc_local.read(tree)] == ["/etc/rc.local"]


def test_none_is_nothing_and_an_empty_one_says_so() -> None:
    assert rc_local.read(Planted(GENERATOR)) == []
    (service,) = rc_local.read(Planted({**GENERATOR, "/etc/rc.local": "#!/bin/sh\nexit 0\n"}))
    assert service.notes == ("it has no command but exit",)


@settings(max_examples=examples(100))
@given(st.binary(max_size=500))
def test_any_script_is_a_bounded_list_of_lines(text: bytes) -> None:
    commands = rc_local.lines(text)
    assert len(commands) <= min(rc_local.MOST_LINES, text.count(b"\n") + 1)
    assert all("\n" not in command and command for command in commands)
