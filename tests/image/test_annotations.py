"""GitHub's annotations: one line each, whatever the names are."""

import re

from hypothesis import given
from hypothesis import strategies as st

from exhume.image.annotations import annotations, harmless
from exhume.image.results import Result

LEAK = Result("growth", "error", "ecs.service", "/usr/lib/systemd/system/ecs.service", "ecs.service leaks 6 a minute")


def test_what_did_not_pass_is_a_line_and_what_passed_is_none() -> None:
    every = [
        LEAK,
        Result("count", "passed", "", "", "240 memory cgroups"),
        Result("bound", "warning", "", "", "100 % sure: no"),
        Result("zombies", "unknown", "", "", "no root"),
        Result("policy", "note", "a,b:c", "", "fine"),
    ]
    assert annotations(every).splitlines() == [
        "::error title=growth%3A ecs.service::ecs.service leaks 6 a minute (/usr/lib/systemd/system/ecs.service)",
        "::warning title=bound::100 %25 sure: no",
        "::error title=zombies::no root",
        "::notice title=policy%3A a%2Cb%3Ac::fine",
    ]


def test_a_file_of_the_repository_may_stand_for_the_image() -> None:
    assert annotations([LEAK], "images/node.pkr.hcl").startswith("::error file=images/node.pkr.hcl,title=growth")


def unescaped(text: str) -> str:
    return text.replace("%0D", "\r").replace("%0A", "\n").replace("%3A", ":").replace("%2C", ",").replace("%25", "%")


@given(st.text(), st.text(), st.text())
def test_no_name_ends_the_line_or_begins_another_command(rule: str, subject: str, message: str) -> None:
    printed = annotations([Result(rule, "error", subject, "", message)])
    assert printed.count("\n") == 1
    assert all(character.isprintable() for character in printed[:-1])
    match = re.fullmatch(r"::error title=([^:,]*)::(.*)\n", printed)
    assert match is not None
    assert not re.search(r"%(?!25|3A|2C)", match[1])
    if message.isprintable():
        assert unescaped(match[2]) == message


def test_names_on_the_same_log_give_no_commands() -> None:
    text = "fine\n  ::stop-commands::x\n::set-output name=a::b\nsee ##[add-mask]fine :: and all"
    assert harmless(text) == "fine\n\\x3a:stop-commands::x\n\\x3a:set-output name=a::b\nsee ##\\x5badd-mask]fine :: and all"


@given(st.text(alphabet=":#[] \nab"))
def test_nothing_that_people_read_is_a_command(text: str) -> None:
    for line in harmless(text).split("\n"):
        assert not line.lstrip().startswith("::")
        assert "##[" not in line
