"""One attempt: what goes over the wire to a real receiver, and what each answer means."""

import json
import socket
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.agent.push_send import Outcome, Sender, multipart, request, series
from exhume.agent.settings import Push
from tests.agent.push_receiver import BEGIN_REAL, Answer, Came, parcel, receiving
from tests.agent.pushers import IDENTITY, impatient, secret, send  # noqa: F401

pytestmark = pytest.mark.usefixtures("impatient")


def test_pyroscope_gets_a_form_with_the_profile_and_what_its_samples_are() -> None:
    with receiving() as receiver:
        assert send(Push(url=receiver.url), body=b"\x1f\x8b\r\n--exhume\0").state == "sent"
        (came,) = receiver.came
    assert came.path.startswith("/ingest?")
    assert came.query == {
        "name": "exhume{node=node-7}",
        "from": "1760000000",
        "until": "1760000060",
        "format": "pprof",
        "spyName": "exhume",
        "sampleRate": "49",
    }
    assert came.parts["profile"] == ("profile.pprof", b"\x1f\x8b\r\n--exhume\0")
    file, config = came.parts["sample_type_config"]
    assert file == "sample_type_config.json"
    assert json.loads(config)["cpu"] == {"units": "nanoseconds", "aggregation": "sum", "sampled": True}
    assert came.headers["idempotency-key"] == IDENTITY


def test_a_path_and_a_query_of_the_receiver_are_kept() -> None:
    with receiving() as receiver:
        send(Push(url=f"{receiver.url}/tenant/?team=a"))
        send(Push(url=f"{receiver.url}/ingest"))
        first, second = receiver.came
    assert first.path.startswith("/tenant/ingest?team=a&name=exhume%7B")
    assert second.path.startswith("/ingest?name=")


def test_any_other_receiver_gets_the_profile_as_it_is() -> None:
    with receiving() as receiver:
        assert send(Push(url=f"{receiver.url}/profiles?x=1", form="pprof"), body=b"abc").state == "sent"
        (came,) = receiver.came
    assert (came.path, came.body, came.headers["content-type"]) == ("/profiles?x=1", b"abc", "application/octet-stream")


@pytest.mark.parametrize("path", ["", "/", "/v1development/profiles"])
def test_a_collector_gets_protobuf_at_its_path(path: str) -> None:
    with receiving() as receiver:
        assert send(Push(url=receiver.url + path, form="otlp"), body=b"abc").state == "sent"
        (came,) = receiver.came
    assert came.path == "/v1development/profiles"
    assert (came.headers["content-type"], came.headers["content-encoding"]) == ("application/x-protobuf", "gzip")


def test_the_token_is_read_for_each_attempt(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with receiving() as receiver:
        for each in ("first\n", "second"):
            secret(file, each)
            assert send(Push(url=receiver.url, token_file=str(file))).state == "sent"
        secret(file, "no\nheader: of ours")
        refused = send(Push(url=receiver.url, token_file=str(file)))
        file.unlink()
        missing = send(Push(url=receiver.url, token_file=str(file)))
        assert [came.headers["authorization"] for came in receiver.came] == ["Bearer first", "Bearer second"]
    assert (refused.state, missing.state) == ("again", "again")
    assert "header" not in refused.detail


def test_without_a_token_none_is_sent() -> None:
    with receiving() as receiver:
        send(Push(url=receiver.url))
        assert "authorization" not in receiver.came[0].headers


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (200, "sent"), (202, "sent"), (204, "sent"),
        (400, "failed"), (401, "again"), (403, "again"), (404, "failed"), (413, "failed"), (422, "failed"),
        (408, "again"), (429, "again"), (500, "again"), (502, "again"), (503, "again"),
    ],
)  # fmt: skip
def test_what_each_status_means(status: int, state: str) -> None:
    with receiving(lambda *_: Answer(status, body=b"" if status == 204 else b"because")) as receiver:
        outcome = send(Push(url=receiver.url))
    assert (outcome.state, outcome.answered) == (state, True)
    if state != "sent":
        assert f"{status} " in outcome.detail
        assert ": because" in outcome.detail
    assert outcome.untrusted == ("agent.push.token_file" in outcome.detail) == (status in (401, 403))


def test_a_redirect_is_not_followed_and_says_so(tmp_path: Path) -> None:
    secret(tmp_path / "token", "secret")
    with receiving() as elsewhere, receiving(lambda *_: Answer(307, (("Location", elsewhere.url),))) as receiver:
        outcome = send(Push(url=receiver.url, token_file=str(tmp_path / "token")))
        assert elsewhere.came == []
    assert outcome.state == "failed"
    assert "redirects are not followed" in outcome.detail


def test_retry_after_is_handed_on() -> None:
    with receiving(lambda *_: Answer(429, (("Retry-After", "7"),))) as receiver:
        assert send(Push(url=receiver.url)).after_s == 7.0


def test_nobody_there_is_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    outcome = send(Push(url=f"http://127.0.0.1:{port}"))
    assert (outcome.state, outcome.answered) == ("again", False)
    assert "refused" in outcome.detail.lower()


def test_a_receiver_that_hangs_is_given_up() -> None:
    hold = threading.Event()

    def hang(*_: object) -> Answer:
        hold.wait(120)
        return Answer()

    with receiving(hang) as receiver:
        outcome = send(Push(url=receiver.url), Sender(timeout_s=0.3))
        hold.set()
    assert (outcome.state, outcome.detail) == ("again", "no answer within 300 ms")


def test_a_receiver_that_dribbles_is_hung_up_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ends = threading.Event()

        def dribble() -> None:
            connection, _ = server.accept()
            with connection:
                try:
                    while not ends.wait(0.05):
                        connection.sendall(b"H")  # a byte at a time, for ever: no step of it takes long
                except OSError:
                    pass

        thread = threading.Thread(target=dribble, daemon=True)
        thread.start()
        outcome = send(Push(url=f"http://127.0.0.1:{server.getsockname()[1]}"), Sender(timeout_s=0.5))
        ends.set()
        thread.join(120)
    assert outcome.state == "again"


def test_a_receiver_that_hangs_up_is_tried_again() -> None:
    def hang_up(*_: object) -> Answer:
        raise ConnectionError

    with receiving(hang_up) as receiver:
        assert send(Push(url=receiver.url)).state == "again"


def test_a_refusal_before_all_was_sent_is_heard() -> None:
    """Who finds a profile too large answers after its headers and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 16):
                    pass

        thread = threading.Thread(target=refuse, daemon=True)
        thread.start()
        outcome = send(Push(url=f"http://127.0.0.1:{server.getsockname()[1]}", form="pprof"), body=b"x" * (4 << 20))
        thread.join(120)
    assert (outcome.state, outcome.detail) == ("failed", "413 Too Large")


def test_close_ends_an_attempt_that_hangs() -> None:
    hold = threading.Event()
    with receiving(lambda *_: Answer(200 if hold.wait(120) else 500)) as receiver:
        sender = Sender()
        found: list[Outcome] = []
        thread = threading.Thread(target=lambda: found.append(send(Push(url=receiver.url), sender)), daemon=True)
        thread.start()
        receiver.wait(1)
        sender.close()
        thread.join(120)
        hold.set()
    assert [one.state for one in found] == ["again"]


def test_a_name_cannot_break_out_of_its_label() -> None:
    hostile = parcel()
    hostile = type(hostile)("pprof", "exhume", 0, 1, 0, (("node", 'a,b}{c="\n é'), ("", "x"), ("y", "")), b"")
    assert series(hostile) == "exhume{node=a_b__c_____}"
    assert "\n" not in request(Push(url="http://a"), hostile, "1").url.query


def test_a_profile_shorter_than_a_second_has_a_length() -> None:
    short = type(parcel())("pprof", "exhume", BEGIN_REAL, BEGIN_REAL + 5, 0, (), b"")
    assert "&from=1760000000&until=1760000001&" in request(Push(url="http://a"), short, "1").url.query


@given(st.binary(max_size=400))
def test_whatever_a_part_holds_comes_out_again(data: bytes) -> None:
    body = multipart("exhume-1", ("profile", "a", data), ("sample_type_config", "b", b"{}"))
    came = Came("/", {"content-type": "multipart/form-data; boundary=exhume-1"}, body)
    if b"--exhume-1" not in data:
        head, _, rest = body.partition(b"\r\n\r\n")
        assert head.startswith(b"--exhume-1\r\n")
        assert rest.startswith(data + b"\r\n--exhume-1\r\n")
        assert came.parts["sample_type_config"] == ("b", b"{}")
