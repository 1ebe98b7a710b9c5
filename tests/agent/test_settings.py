"""What can be set: file, environment, flags, each above the one before; every mistake named by its place."""

import os
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.agent import settings
from exhume.agent.settings import Audit, Push, Settings, address, as_toml, read
from exhume.config import variables
from exhume.errors import UsageError
from tests.recorders import exhume


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("EXHUME_"):
            monkeypatch.delenv(name)


def file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "exhume.toml"
    path.write_text(text)
    return str(path)


def test_flags_are_above_the_environment_and_that_above_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file(
        tmp_path, '[agent]\nhz = 11\nlisten = "127.0.0.1:1"\nkeep_s = 300\n[agent.push]\nlabels = ["a=b"]\nevery_s = 5\n'
    )
    assert read(path)[0].hz == 11
    monkeypatch.setenv("EXHUME_AGENT_HZ", "97")
    monkeypatch.setenv("EXHUME_AGENT_LISTEN", "127.0.0.1:2")
    monkeypatch.setenv("EXHUME_AGENT_USER_STACKS", "host")
    monkeypatch.setenv("EXHUME_AGENT_PUSH_LABELS", "x=1, y=2")
    monkeypatch.setenv("EXHUME_AGENT_AUDIT_EVERY_H", "6")
    found, _ = read(path, listen="127.0.0.1:3", dir=None)
    assert (found.hz, found.listen, found.keep_s, found.user_stacks) == (97, "127.0.0.1:3", 300, "host")
    assert (found.push.labels, found.push.every_s, found.audit.every_h) == (("x=1", "y=2"), 5, 6)
    assert found.dir == Settings().dir


def test_thresholds_come_from_the_same_file(tmp_path: Path) -> None:
    _, thresholds = read(file(tmp_path, "[thresholds]\nrecent_s = 77\n"))
    assert thresholds.recent_s == 77


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[agent]\nhz = 1000", "agent.hz must be below 1,000"),
        ("[agent]\nhz = -1", "agent.hz must not be -1"),
        ('[agent]\nhz = "many"', "agent.hz must be a whole number"),
        ("[agent]\nherz = 49", "agent.herz is not known, did you mean hz"),
        ("[agent]\nbudget_mib = 1", "agent.budget_mib must be 16 or more"),
        ("[agent]\nkeep_s = 60", "agent.keep_s must be 120 or more"),
        ("[agent]\ncpu_limit_ratio = 2.0", "agent.cpu_limit_ratio is a share"),
        ("[agent]\ncpu_limit_ratio = 0", "agent.cpu_limit_ratio must be more than 0"),
        ("[agent]\ncpu_limit_ratio = nan", "agent.cpu_limit_ratio must not be nan"),
        ("[agent]\nmemory_limit_mib = 10", "agent.memory_limit_mib must be 64 or more"),
        ('[agent]\nlisten = "9464"', "agent.listen must be ADDRESS:PORT"),
        ('[agent]\nlisten = "127.0.0.1:70000"', "agent.listen must be ADDRESS:PORT"),
        ('[agent]\ntls_cert = "/x"', "agent.tls_cert and agent.tls_key go together"),
        ("[agent]\nlatency = 1", "agent.latency must be true or false"),
        ('[agent.push]\nform = "smoke"', "agent.push.form must be one of"),
        ('[agent.push]\nurl = "ftp://x"', "agent.push.url must begin with http"),
        ('[agent.push]\nlabels = ["x"]', "agent.push.labels has 'x'"),
        ('[agent.push]\nlabels = "a=b"', "agent.push.labels must be a list"),
        ("[agent.push]\nhz = 1", "agent.push.hz is not known"),
        ("[agent.audit]\nevery_h = 1.5", "agent.audit.every_h must be a whole number"),
        ("[agent]\naudit = 3", "agent.audit must be a section"),
        ("[agents]\nhz = 1", r"\[agents\] is not a section"),
        ("[agent\nhz = 1", "is not TOML"),
    ],
)
def test_a_mistake_is_named_by_its_place(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read(file(tmp_path, text))


def test_a_mistake_in_the_environment_is_named_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXHUME_AGENT_HZ", "fast")
    with pytest.raises(UsageError, match="EXHUME_AGENT_HZ must be a number, not 'fast'"):
        read()
    monkeypatch.setenv("EXHUME_AGENT_HZ", "49")
    monkeypatch.setenv("EXHUME_AGENT_LATENCY", "perhaps")
    with pytest.raises(UsageError, match="EXHUME_AGENT_LATENCY must be true or false"):
        read()


def test_what_a_cluster_puts_into_the_environment_for_a_service_of_our_name_is_no_mistake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for service in ("EXHUME_AGENT", "EXHUME_AGENT_PUSH", "EXHUME_AGENT_METRICS"):
        monkeypatch.setenv(f"{service}_PORT", "tcp://10.0.0.1:9464")
        monkeypatch.setenv(f"{service}_PORT_9464_TCP", "tcp://10.0.0.1:9464")
        for rest in ("PROTO", "PORT", "ADDR"):
            monkeypatch.setenv(f"{service}_PORT_9464_TCP_{rest}", "tcp")
        for rest in ("HOST", "PORT", "PORT_METRICS"):
            monkeypatch.setenv(f"{service}_SERVICE_{rest}", "10.0.0.1")
    assert read()[0] == Settings()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("EXHUME_AGENT_AUTHFILE", "EXHUME_AGENT_AUTHFILE is not known, did you mean EXHUME_AGENT_AUTH_FILE?"),
        ("EXHUME_AGENT_PUSH_ADDRESS", "EXHUME_AGENT_PUSH_ADDRESS is not known"),
        ("EXHUME_AGENT_PUSH", "EXHUME_AGENT_PUSH is not known"),
        ("EXHUME_AGENT_hz", "EXHUME_AGENT_hz is not known"),
        ("EXHUME_AGENT_PORT", "EXHUME_AGENT_PORT is not known"),
        ("EXHUME_AGENT_A\x1b[2J", r"EXHUME_AGENT_A\x1b[2J is not known"),
    ],
)
def test_a_variable_that_is_none_is_named_and_what_it_holds_is_not(
    monkeypatch: pytest.MonkeyPatch, name: str, says: str
) -> None:
    monkeypatch.setenv(name, "9464-secret")
    with pytest.raises(UsageError) as refused:
        read()
    assert str(refused.value).startswith(says)
    assert "9464" not in str(refused.value)


def test_variables_that_are_not_the_agents_are_let_be(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EXHUME_NODE_NAME", "EXHUME_AGENTS_HZ", "EXHUME_SEGMENT_S"):
        monkeypatch.setenv(name, "x")
    assert read()[0] == Settings()


def test_what_is_deployed_and_documented_names_no_variable_that_there_is_not() -> None:
    apart = settings._APART
    known = {*variables("EXHUME_AGENT", Settings, tuple(apart))}
    known |= {name for part, kind in apart.items() for name in variables(f"EXHUME_AGENT_{part}", kind)}
    top = Path(__file__).resolve().parent.parent.parent
    files = [*top.glob("deploy/**/*"), *top.glob("docs/*.md"), top / "README.md"]
    named = {
        name for path in files if path.is_file() for name in re.findall(rb"EXHUME_AGENT_[A-Z0-9_]*[A-Z0-9]", path.read_bytes())
    }
    assert b"EXHUME_AGENT_KUBERNETES_NODE_NAME" in named
    assert {name.decode() for name in named} <= known


def test_addresses() -> None:
    assert address("0.0.0.0:9464") == ("0.0.0.0", 9464)
    assert address("[::1]:9464") == ("::1", 9464)
    assert address(":0") == ("127.0.0.1", 0)


_TEXT = st.text(st.characters(codec="utf-8"), max_size=20)


def _any(kind: type) -> st.SearchStrategy[dict[str, Any]]:
    by_type = {
        "str": _TEXT,
        "int": st.integers(0, 10**6),
        "bool": st.booleans(),
        "float": st.floats(0.0, 1.0),
        "tuple[str, ...]": st.lists(_TEXT, max_size=3).map(tuple),
    }
    names = {each.name: str(getattr(each.type, "__name__", each.type)) for each in fields(kind)}
    return st.fixed_dictionaries({name: by_type[of] for name, of in names.items() if of in by_type})


@given(_any(Settings), _any(Push), _any(Audit))
def test_what_is_printed_is_read_back_the_same(tmp_path_factory: Any, mine: Any, push: Any, audit: Any) -> None:
    given_settings = Settings(
        **{name: value for name, value in mine.items() if name != "tuple"}, push=Push(**push), audit=Audit(**audit)
    )
    path = tmp_path_factory.mktemp("toml") / "exhume.toml"
    path.write_text(as_toml(given_settings), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "_checked", lambda one: one)  # whether it makes sense is not the question
        assert read(str(path))[0] == given_settings


def test_every_key_says_what_it_means_and_is_printed() -> None:
    text = as_toml(Settings())
    apart = settings._APART
    for kind in (Settings, *apart.values()):
        for each in fields(kind):
            if each.name not in apart:
                assert f"\n{each.name} = " in text
                assert each.metadata["doc"] in text


def test_print_config_prints_what_holds_and_starts_nothing(tmp_path: Path) -> None:
    path = file(tmp_path, "[agent]\nhz = 11\n")
    done = exhume(
        "agent", "--config", path, "--listen", "[::1]:1", "--print-config", environment={"EXHUME_AGENT_KEEP_S": "600"}
    )
    assert done.returncode == 0
    (tmp_path / "again.toml").write_bytes(done.stdout)
    expected = replace(Settings(), hz=11, listen="[::1]:1", keep_s=600)
    assert read(str(tmp_path / "again.toml"))[0] == expected


def test_a_mistake_ends_it_with_64_and_a_sentence(tmp_path: Path) -> None:
    for more in ((), ("--print-config",)):
        done = exhume("agent", "--config", file(tmp_path, '[agent]\non = "rain"\n'), "--dir", tmp_path / "r", *more)
        assert done.returncode == 64
        assert done.stderr.startswith(b"exhume: agent.on 'rain' is not a kind of finding")
        assert not (tmp_path / "r").exists()
