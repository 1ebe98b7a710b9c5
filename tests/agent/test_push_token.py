"""Tokens are rotated: a receiver that refuses one is asked again, slowly, and at once when there is another."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from exhume.agent.settings import Push
from exhume.host.http import client
from tests.agent.push_receiver import Answer, Receiver, receiving
from tests.agent.pushers import Agent, impatient, pushing, secret, send, spooled  # noqa: F401
from tests.render.made import BEGIN, SECOND, write

pytestmark = pytest.mark.usefixtures("impatient")


@contextmanager
def refused(tmp_path: Path) -> Iterator[tuple[Agent, Receiver]]:
    """A receiver that wants the token `new`, and a pusher whose is not, and that was told so."""
    secret(tmp_path / "token", "has-run-out")
    with (
        receiving(lambda came, _: Answer(200 if came.headers["authorization"] == "Bearer new" else 401, body=b"expired")) as it,
        pushing(tmp_path, Push(url=it.url, form="pprof", token_file=str(tmp_path / "token"))) as agent,
    ):
        agent.pusher.look(BEGIN)
        agent.until(lambda: bool(agent.said), "a word")
        yield agent, it


@pytest.mark.parametrize("how", ["written over", "replaced", "link"])
def test_a_token_that_has_run_out_keeps_profiles_waiting_until_there_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr("exhume.agent.push.TOKEN_EVERY_S", 0.02)
    names = spooled(tmp_path, 1, 2)
    with refused(tmp_path) as (agent, receiver):
        assert (agent.spool.waiting(), agent.counted("failed"), len(receiver.came)) == (names, 0, 1)
        if how == "written over":
            secret(tmp_path / "token", "new")
        else:  # as Kubernetes does it with its tokens: the name leads to another file
            secret(tmp_path / "other", "new")
            (tmp_path / "next").symlink_to("other") if how == "link" else secret(tmp_path / "next", "new")
            (tmp_path / "next").replace(tmp_path / "token")
        agent.until(lambda: agent.counted("sent") == 2, "both sent")
    told = "; tried again every few minutes, and when agent.push.token_file changes"
    assert agent.said == [f"profiles wait to be pushed: 401 Unauthorized: expired{told}"]


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o622, 0o444])
def test_a_token_that_others_can_read_is_not_sent(tmp_path: Path, mode: int) -> None:
    secret(tmp_path / "token", "secret")
    (tmp_path / "token").chmod(mode)
    with receiving() as receiver:
        push = Push(url=receiver.url, token_file=str(tmp_path / "token"))
        outcome = send(push)
        assert receiver.came == []
        (tmp_path / "token").chmod(0o400)  # as the chart mounts it
        assert send(push).state == "sent"
    assert outcome.state == "again"
    assert f"can be read by others: chmod 600 {tmp_path}/token" in outcome.detail
    assert "secret" not in outcome.detail


def test_a_token_that_was_readable_is_tried_again_when_it_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spooled(tmp_path, 1)
    secret(tmp_path / "token", "new")
    (tmp_path / "token").chmod(0o644)
    with receiving() as receiver, pushing(tmp_path, Push(url=receiver.url, token_file=str(tmp_path / "token"))) as agent:
        agent.pusher.look(BEGIN)
        agent.until(lambda: any("can be read by others" in said for said in agent.said), "a word")
        (tmp_path / "token").chmod(0o600)
        agent.until(lambda: agent.counted("sent") == 1, "sent")


def test_a_token_goes_to_no_other_host_by_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also not through a proxy, whose host is the one that reads it."""
    secret(tmp_path / "token", "secret")
    push = Push(url="http://receiver.example", token_file=str(tmp_path / "token"))
    tried: list[str] = []

    def connect(self: client._Socket, host: str, *_: object) -> None:
        tried.append(host)
        raise OSError("not in a test")

    monkeypatch.setattr(client._Socket, "connect", connect)
    assert "the token is not sent to receiver.example over http://" in send(push).detail
    monkeypatch.setenv("HTTP_PROXY", "http://between.example:3128")
    assert "not sent to between.example" in send(push).detail
    assert tried == []
    assert "not in a test" in send(replace(push, token_over_http=True)).detail
    assert "not in a test" in send(replace(push, token_file="")).detail
    assert "not in a test" in send(replace(push, url="http://127.0.0.1:4040")).detail  # loopback: not through the proxy
    assert tried == ["between.example", "between.example", "127.0.0.1"]


def test_settings_that_are_read_again_end_the_wait(tmp_path: Path) -> None:
    spooled(tmp_path, 1)
    with refused(tmp_path) as (agent, _):
        secret(tmp_path / "new", "new")
        agent.pusher.change(replace(agent.pusher.push, token_file=str(tmp_path / "new")))
        agent.until(lambda: agent.counted("sent") == 1, "sent")


def test_what_waits_for_a_token_keeps_to_the_spools_bound(tmp_path: Path) -> None:
    write(tmp_path / "rec")
    names = spooled(tmp_path, *range(-100, -97), size=400_000)
    secret(tmp_path / "token", "has-run-out")
    push = Push(form="pprof", every_s=2, spool_mib=1, token_file=str(tmp_path / "token"))
    with receiving(lambda *_: Answer(403)) as receiver, pushing(tmp_path, replace(push, url=receiver.url)) as agent:
        agent.pusher.look(BEGIN)
        agent.pusher.look(BEGIN + 2 * SECOND)
        agent.until(lambda: agent.counted("dropped") == 1, "one too many")
        assert agent.spool.waiting()[:2] == names[1:]


def test_a_receiver_that_refuses_is_left_alone_for_minutes(tmp_path: Path) -> None:
    secret(tmp_path / "token", "has-run-out")
    answers = [Answer(401), Answer(403, (("Retry-After", "7"),))]
    with receiving(lambda _, before: answers[before]) as receiver:
        push = Push(url=receiver.url, token_file=str(tmp_path / "token"))
        assert [send(push).after_s, send(push).after_s] == [300.0, 7.0]
