"""The command line: help, usage, exit codes, completion."""

import subprocess
import sys

import pytest

from exhume import __version__
from exhume.cli.arguments import duration_ns
from exhume.cli.main import COMMANDS, command_parser, main


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_manual_with_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "examples:" in text
    assert f"exhume {name}" in text


def test_the_overview_lists_every_command_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert all(name in text for name in COMMANDS)
    assert "64 wrong usage" in text


def test_the_overview_imports_neither_numpy_nor_a_command() -> None:
    code = "import atexit, sys; atexit.register(lambda: print(sorted(sys.modules)))\n"
    code += "from exhume.cli.main import main; main(['--help'])"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "'numpy'" not in modules
    assert "exhume.cli.check" not in modules
    assert "exhume.recorder" not in modules


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"exhume {__version__}\n"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["chekc"], "did you mean check?"),
        (["check", "--for", "soon"], "is not a duration"),
        (["check", "--for", "1ms"], "--for must be between"),
        (["check", "--host", "/nowhere"], "is not a directory"),
        (["check", "--config", "/nowhere.toml"], "is not there"),
        (["check", "--bogus"], "unrecognized arguments"),
        (["completion", "tcsh"], "invalid choice"),
    ],
)
def test_wrong_usage_is_a_sentence_and_64(argv: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    code: object
    try:
        code = main(argv)
    except SystemExit as stop:
        code = stop.code
    assert code == 64
    out, err = capsys.readouterr()
    assert says in err
    assert out == ""


def test_nothing_typed_shows_the_overview(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 64
    assert "commands:" in capsys.readouterr().out


def test_a_bug_is_reported_as_ours_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*args: object) -> object:
        raise RuntimeError("boom")

    monkeypatch.setattr("exhume.cli.check.look", broken)
    assert main(["check"]) == 70
    err = capsys.readouterr().err
    assert "a bug in exhume" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command_and_option(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for name in COMMANDS:
        assert name in script
        for action in command_parser(name)._actions:
            for option in action.option_strings:
                assert (option if shell != "fish" else option.lstrip("-")) in script


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("check --w", ["--watch"]),
        ("export rec --format p", ["pprof", "perfetto", "parquet"]),
        ("fix ecs --keep ''", ["no-restart", "start-limit", "do-nothing"]),
        ("check --host ''", []),  # bash then offers files
        ("completion f", ["fish"]),
    ],
)
def test_bash_completes_for_real(typed: str, offered: list[str]) -> None:
    code = (
        f'source <("$0" -m exhume completion bash); COMP_WORDS=(exhume {typed}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); '
        'COMPREPLY=(old); _exhume; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", code, sys.executable], capture_output=True, text=True, check=True)
    assert done.stdout.split() == offered


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("3s", 3 * 10**9),
        ("300ms", 3 * 10**8),
        ("2.5s", 25 * 10**8),
        ("10m", 600 * 10**9),
        ("7", 7 * 10**9),
        ("1h", 3600 * 10**9),
    ],
)
def test_durations_as_people_type_them(text: str, ns: int) -> None:
    assert duration_ns(text) == ns


def test_a_reader_that_leaves_early_is_no_error() -> None:
    done = subprocess.run(
        ["bash", "-c", f"'{sys.executable}' -m exhume check --for 200ms --json | head -c 10"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
