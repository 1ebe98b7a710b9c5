"""systemd's services: read from a real systemd, and from servers that are old, slow, hostile or not there."""

import contextlib
import itertools
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jeepney import HeaderFields, Message, MessageType, Parser, new_error, new_method_return
from jeepney.low_level import Endianness, Header

from exhume.errors import Unreadable
from exhume.host import bus as dbus
from exhume.host.root import Root
from exhume.host.unit_needs import QUESTIONS, needed_by
from exhume.recording.recording import Node, Recording
from exhume.recording.source_state import sentences
from exhume.sources import units
from tests import systemd

UNITS = {
    "loop.service": "[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=/bin/false\nRestart=always\nRestartSec=100ms\n",
    "broken.service": "[Service]\nExecStart=/bin/sh -c 'exit 3'\n",
    "needs.service": "[Unit]\nRequires=loop.service\n[Service]\nExecStart=/bin/sleep infinity\n",
    "steady@.service": "[Service]\nExecStart=/bin/sleep infinity\n",
    "foo\\x2dbar@.service": "[Service]\nExecStart=/bin/sleep infinity\n",
    "agent.service": "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n",
}

Rows = dict[str, dict[str, Any]]
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)


def read(root: str) -> tuple[Rows, str]:
    recording = Recording(Node("node", "boot", "6.18", "v1", 2))
    note = sentences(units.Units(Root(root)).read(recording, 7))
    return {row["unit"]: row for row in recording["units"].rows()}, note


@pytest.fixture(scope="module")
def machine() -> Iterator[systemd.Machine]:
    if why := systemd.unavailable():
        pytest.skip(why)
    with systemd.boot(UNITS) as booted:
        booted.run(["systemctl", "start", "--no-block", "loop.service", "broken.service"])
        booted.run(["systemctl", "enable", "--now", "agent.service"])
        booted.run(["systemctl", "start", "--no-block", "needs.service"])
        booted.run(["systemctl", "start", "foo\\x2dbar@baz.service", *(f"steady@{i}.service" for i in range(40))])
        yield booted


def shown(machine: systemd.Machine, unit: str, name: str) -> str:
    """What systemctl, which knows nothing of us, says of a unit."""
    return machine.run(["systemctl", "show", "--value", "-p", name, unit]).stdout.strip()


def wait_until(what: Callable[[], bool]) -> None:
    for _ in range(300):
        if what():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come to pass within 30 s")


def test_a_crash_loop_shows_as_growing_restarts(machine: systemd.Machine) -> None:
    wait_until(lambda: int(shown(machine, "loop.service", "NRestarts")) > 0)
    before, _ = read(machine.root)
    known = int(shown(machine, "loop.service", "NRestarts"))
    wait_until(lambda: int(shown(machine, "loop.service", "NRestarts")) >= known + 2)
    after, _ = read(machine.root)
    assert 0 < before["loop.service"]["restarts"] <= known
    assert after["loop.service"]["restarts"] >= known + 2
    assert after["loop.service"]["time"] == 7


def test_a_failed_service_shows_its_result(machine: systemd.Machine) -> None:
    wait_until(lambda: shown(machine, "broken.service", "ActiveState") == "failed")
    rows, _ = read(machine.root)
    broken = rows["broken.service"]
    assert (broken["active"], broken["sub"], broken["result"], broken["main_pid"]) == ("failed", "failed", "exit-code", 0)


def test_a_running_service_shows_process_cgroup_and_that_it_is_enabled(machine: systemd.Machine) -> None:
    rows, note = read(machine.root)
    agent = rows["agent.service"]
    assert (agent["active"], agent["sub"], agent["restarts"], agent["result"]) == ("active", "running", 0, "success")
    assert agent["enabled"] == "enabled"
    assert agent["main_pid"] == int(shown(machine, "agent.service", "MainPID")) > 0
    assert agent["cgroup"] == "/system.slice/agent.service"
    assert note == ""


def test_who_needs_a_unit_in_trouble_is_asked_of_systemd(machine: systemd.Machine) -> None:
    wait_until(lambda: int(shown(machine, "loop.service", "NRestarts")) > 0)
    rows, _ = read(machine.root)
    assert rows["loop.service"]["needed_by"] == "needs.service"
    assert shown(machine, "loop.service", "RequiredBy") == "needs.service"
    wait_until(lambda: shown(machine, "broken.service", "ActiveState") == "failed")
    assert read(machine.root)[0]["broken.service"]["needed_by"] == ""


def test_an_escaped_unit_name_is_carried_as_it_is(machine: systemd.Machine) -> None:
    rows, _ = read(machine.root)
    odd = rows["foo\\x2dbar@baz.service"]
    assert odd["active"] == "active"
    assert odd["cgroup"] == shown(machine, "foo\\x2dbar@baz.service", "ControlGroup")
    assert odd["main_pid"] == int(shown(machine, "foo\\x2dbar@baz.service", "MainPID"))


def test_more_questions_than_the_bus_takes_at_once_are_all_answered(machine: systemd.Machine) -> None:
    rows, note = read(machine.root)
    steady = [row for name, row in rows.items() if name.startswith("steady@")]
    assert len(steady) * 5 > 128  # dbus-daemon's limit of calls under way
    assert {(row["restarts"], row["result"], row["enabled"]) for row in steady} == {(0, "success", "static")}
    assert len({row["main_pid"] for row in steady}) == 40
    assert note == ""


def test_inactive_services_are_listed_without_being_asked_and_nothing_but_services_is(machine: systemd.Machine) -> None:
    rows, _ = read(machine.root)
    inactive = [row for row in rows.values() if row["active"] == "inactive" and row["unit"] != "loop.service"]
    assert inactive
    assert {(row["sub"], row["restarts"], row["result"], row["main_pid"]) for row in inactive} == {("dead", -1, "", 0)}
    assert {name.rpartition(".")[2] for name in rows} == {"service"}


def test_a_pid_1_that_hangs_is_given_up_and_named(machine: systemd.Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dbus, "DEADLINE_S", 0.3)
    os.kill(machine.leader, signal.SIGSTOP)
    try:
        with pytest.raises(Unreadable, match=r"within 300 ms: PID 1 may hang"):
            read(machine.root)
    finally:
        os.kill(machine.leader, signal.SIGCONT)


def test_without_a_bus_root_asks_pid_1_itself(machine: systemd.Machine) -> None:
    source = str(Path(units.__file__).parents[2])
    for needed in (source, sys.prefix, os.path.realpath(sys.executable)):
        if os.stat(needed).st_dev != os.stat("/").st_dev:
            pytest.skip(f"{needed} is on another file system than /, so the container does not have it")
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from exhume.sources import units\n"
        "from exhume.host import bus as dbus\n"
        "from exhume.host.root import Root\n"
        "from exhume.recording.recording import Node, Recording\n"
        "dbus.BUS = 'run/dbus/no_such_socket'\n"
        "recording = Recording(Node('', '', '', '', 1))\n"
        "note = units.Units(Root()).read(recording, 7)\n"
        "print([(r['active'], r['enabled']) for r in recording['units'].rows() if r['unit'] == 'agent.service'], repr(note))"
    )
    assert machine.run([sys.executable, "-c", script, source]).stdout == "[('active', 'enabled')] ()\n"


# Servers that are not a healthy systemd.

Answer = Callable[[Message], Message | bytes | None]
Script = Callable[[socket.socket], None]


@contextlib.contextmanager
def served(root: Path, script: Script) -> Iterator[None]:
    """A server on the bus's socket below `root` that lets one client in and plays the script."""
    directory = root / "run" / "dbus"
    directory.mkdir(parents=True)
    here = os.open(directory, os.O_PATH)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"/proc/self/fd/{here}/system_bus_socket")  # a path of any length
    os.close(here)
    listener.listen()
    stop, stopped = socket.socketpair()

    def serve() -> None:
        ready = select.poll()  # select() knows no descriptor above 1023
        ready.register(listener, select.POLLIN)
        ready.register(stopped, select.POLLIN)
        ready.poll()
        listener.setblocking(False)
        with contextlib.suppress(OSError):
            client, _ = listener.accept()
            with client:
                client.settimeout(30)
                script(client)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        stop.close()
        thread.join()
        stopped.close()
        listener.close()


def bus(answer: Answer) -> Script:
    """A server that authenticates like a real one, then answers each call; silence where the answer is None."""

    def script(client: socket.socket) -> None:
        received = b""
        while b"BEGIN\r\n" not in received:
            received += client.recv(4096)
        assert received.startswith(b"\0AUTH EXTERNAL " + str(os.geteuid()).encode().hex().encode() + b"\r\n")
        client.sendall(b"OK 0123456789abcdef0123456789abcdef\r\n")
        parser = Parser()
        messages = parser.feed(received.partition(b"BEGIN\r\n")[2])
        serial = itertools.count(1)
        while True:
            for message in messages:
                reply = answer(message)
                if isinstance(reply, Message):
                    reply = reply.serialise(next(serial))
                if reply:
                    client.sendall(reply)
            chunk = client.recv(1 << 16)
            if not chunk:
                return
            messages = parser.feed(chunk)

    return script


def until_closed(client: socket.socket) -> None:
    while client.recv(4096):
        pass


def member(message: Message) -> str:
    return str(message.header.fields[HeaderFields.member])


def unit_row(name: str, active: str = "active", sub: str = "running", load: str = "loaded", job: int = 0) -> tuple[Any, ...]:
    path = "/org/freedesktop/systemd1/unit/" + "".join(c if c.isalnum() else f"_{ord(c):02x}" for c in name)
    return (name, "", load, active, sub, "", path, job, "", "/")


def manager(rows: list[tuple[Any, ...]], get: Answer) -> Answer:
    """A systemd that lists these units and answers Get by `get`."""

    def answer(message: Message) -> Message | bytes | None:
        if member(message) == "Hello":
            return new_method_return(message, "s", (":1.1",))
        if member(message).startswith("ListUnits"):
            return new_method_return(message, "a(ssssssouso)", (rows,))
        return get(message)

    return answer


def healthy(message: Message) -> Message:
    values = {
        "NRestarts": ("u", 4),
        "Result": ("s", "success"),
        "ControlGroup": ("s", "/a"),
        "MainPID": ("u", 9),
        "UnitFileState": ("s", "enabled"),
        **dict.fromkeys(QUESTIONS, ("as", [])),
        "WantedBy": ("as", ["multi-user.target", "other.service"]),
    }
    return new_method_return(message, "v", (values[message.body[1]],))


def test_without_systemd_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match=r"^systemd is not running here$"):
        read(str(tmp_path))


def test_systemd_without_a_bus_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    with pytest.raises(Unreadable, match=r"^no D-Bus socket at /run/dbus/system_bus_socket "):
        read(str(tmp_path))


def test_a_regular_file_in_place_of_the_socket_is_named(tmp_path: Path) -> None:
    (tmp_path / "run/dbus").mkdir(parents=True)
    (tmp_path / "run/dbus/system_bus_socket").write_bytes(b"")
    with pytest.raises(Unreadable, match="is not a socket"):
        read(str(tmp_path))


def test_a_link_in_another_root_does_not_lead_to_a_bus_of_ours(tmp_path: Path) -> None:
    with served(tmp_path / "ours", until_closed):
        (tmp_path / "theirs/run/dbus").mkdir(parents=True)
        (tmp_path / "theirs/run/dbus/system_bus_socket").symlink_to(tmp_path / "ours/run/dbus/system_bus_socket")
        with pytest.raises(Unreadable, match="systemd is not running here"):
            read(str(tmp_path / "theirs"))


@pytest.mark.parametrize("link", ["run", "run/dbus"])
def test_a_link_on_the_way_to_the_bus_of_another_root_does_not_lead_to_ours(tmp_path: Path, link: str) -> None:
    with served(tmp_path / "ours", until_closed):
        (tmp_path / "theirs" / link).parent.mkdir(parents=True)
        (tmp_path / "theirs" / link).symlink_to(tmp_path / "ours" / link)
        with pytest.raises(Unreadable, match="systemd is not running here"):
            read(str(tmp_path / "theirs"))


def test_a_socket_that_nobody_listens_on_is_named(tmp_path: Path) -> None:
    with served(tmp_path, until_closed):
        pass
    with pytest.raises(Unreadable, match="no D-Bus server listens"):
        read(str(tmp_path))


def test_a_server_that_takes_no_connections_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run/dbus").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)  # keeps the address short
    address = "run/dbus/system_bus_socket"
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as crowd:
        listener.bind(address)
        listener.listen(0)
        while True:
            client = crowd.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            try:
                client.connect(address)
            except BlockingIOError:
                break
        with pytest.raises(Unreadable, match="takes no connections"):
            read(str(tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_socket_that_we_may_not_open_is_named(tmp_path: Path) -> None:
    with served(tmp_path, until_closed):
        (tmp_path / "run/dbus").chmod(0o700)
        os.seteuid(65534)
        try:
            with pytest.raises(Unreadable, match="Permission denied"):
                read(str(tmp_path))
        finally:
            os.seteuid(0)


def test_a_root_deeper_than_a_socket_address_is_long_can_be_read(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    with served(deep, bus(manager([unit_row("a.service")], healthy))):
        rows, note = read(str(deep))
    assert rows["a.service"] == {
        "time": 7,
        "unit": "a.service",
        "active": "active",
        "sub": "running",
        "restarts": 4,
        "result": "success",
        "enabled": "enabled",
        "main_pid": 9,
        "cgroup": "/a",
        "needed_by": "other.service",
    }
    assert note == ""


def test_garbage_on_the_socket_is_refused(tmp_path: Path) -> None:
    def script(client: socket.socket) -> None:
        client.sendall(bytes(range(256)) * 40)
        until_closed(client)

    with served(tmp_path, script), pytest.raises(Unreadable, match="did not let us in"):
        read(str(tmp_path))


def test_garbage_after_a_good_beginning_is_refused(tmp_path: Path) -> None:
    with served(tmp_path, bus(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n")), pytest.raises(Unreadable, match="speak D-Bus"):
        read(str(tmp_path))


def test_a_server_that_rejects_us_is_quoted(tmp_path: Path) -> None:
    def script(client: socket.socket) -> None:
        client.recv(4096)
        client.sendall(b"REJECTED EXTERNAL\r\n")
        until_closed(client)

    with served(tmp_path, script), pytest.raises(Unreadable, match=r"did not let us in.*REJECTED"):
        read(str(tmp_path))


def test_a_server_that_hangs_up_is_named(tmp_path: Path) -> None:
    def script(client: socket.socket) -> None:
        client.recv(4096)

    with served(tmp_path, script), pytest.raises(Unreadable, match="hung up"):
        read(str(tmp_path))


def test_a_server_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dbus, "DEADLINE_S", 0.1)
    with served(tmp_path, until_closed), pytest.raises(Unreadable, match=r"no answer over D-Bus within 100 ms"):
        read(str(tmp_path))


def test_a_server_that_floods_us_with_signals_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dbus, "DEADLINE_S", 0.1)
    fields = {HeaderFields.path: "/a", HeaderFields.interface: "a.b", HeaderFields.member: "C"}
    signals = Message(Header(Endianness.little, MessageType.signal, 1, 1, 0, 1, fields), ()).serialise() * 100

    def flood(client: socket.socket) -> None:
        client.recv(4096)
        client.sendall(b"OK 0123456789abcdef0123456789abcdef\r\n")
        while True:
            client.sendall(signals)

    with served(tmp_path, flood), pytest.raises(Unreadable, match=r"within 100 ms"):
        read(str(tmp_path))


def test_a_message_of_absurd_size_is_refused_before_it_is_read(tmp_path: Path) -> None:
    head = b"l\2\1\1" + (1 << 30).to_bytes(4, "little") + bytes(8)
    with served(tmp_path, bus(lambda _: head)), pytest.raises(Unreadable, match="a message of 1 GiB, more than 4 MiB"):
        read(str(tmp_path))


def test_an_endless_array_of_nothing_does_not_hold_us(tmp_path: Path) -> None:
    fields = b"\x08\x03a()\0" + bytes(2) + (8).to_bytes(4, "little") + bytes(4) + bytes(8)
    raw = b"l\2\1\1" + bytes(4) + (1).to_bytes(4, "little") + len(fields).to_bytes(4, "little") + fields
    with served(tmp_path, bus(lambda _: raw)), pytest.raises(Unreadable, match="speak D-Bus"):
        read(str(tmp_path))


def test_a_refusal_of_systemd_is_quoted_without_its_control_characters(tmp_path: Path) -> None:
    def answer(message: Message) -> Message:
        if member(message) == "Hello":
            return new_method_return(message, "s", (":1.1",))
        return new_error(message, "org.freedesktop.DBus.Error.AccessDenied", "s", ("SELinux\x1b[2J says no",))

    with served(tmp_path, bus(answer)), pytest.raises(Unreadable, match=r"AccessDenied: SELinux\\x1b\[2J says no"):
        read(str(tmp_path))


def test_systemd_before_235_has_no_restart_counter_and_is_read_all_the_same(tmp_path: Path) -> None:
    def get(message: Message) -> Message:
        if message.body[1] == "NRestarts":
            return new_error(message, "org.freedesktop.DBus.Error.UnknownProperty", "s", ("Unknown property NRestarts",))
        return healthy(message)

    listing = manager([unit_row("a.service"), unit_row("var.mount", sub="mounted")], get)

    def answer(message: Message) -> Message | bytes | None:
        if member(message) == "ListUnitsByPatterns":  # from 230
            return new_error(message, "org.freedesktop.DBus.Error.UnknownMethod", "s", ("Unknown method",))
        return listing(message)

    with served(tmp_path, bus(answer)):
        rows, note = read(str(tmp_path))
    assert rows.keys() == {"a.service"}
    assert (rows["a.service"]["restarts"], rows["a.service"]["main_pid"], note) == (-1, 9, "")


def test_what_was_answered_before_the_deadline_is_kept_and_the_rest_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dbus, "DEADLINE_S", 0.5)
    answered = itertools.count()

    def get(message: Message) -> Message | None:
        return healthy(message) if next(answered) < 3 else None

    with served(tmp_path, bus(manager([unit_row("a.service"), unit_row("b.service")], get))):
        rows, note = read(str(tmp_path))
    assert [(row["restarts"], row["result"]) for row in rows.values()] == [(4, "success"), (4, "")]
    assert note == "systemd answered only 1 of 8 questions about its services within 500 ms"


def test_with_too_many_services_the_troubled_ones_are_asked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "MOST_ASKED", 3)
    monkeypatch.setattr(units, "MOST_LOOKED_UP", 1)
    rows = [unit_row(f"fine{i}.service") for i in range(5)]
    rows += [unit_row("loop.service", "activating", "auto-restart"), unit_row("bad.service", "failed", "failed")]
    with served(tmp_path, bus(manager(rows, healthy))):
        seen, note = read(str(tmp_path))
    assert len(seen) == 7
    assert {name for name, row in seen.items() if row["restarts"] == 4} == {"loop.service", "bad.service", "fine0.service"}
    assert note == "only 3 of 7 services that are not inactive were asked; only 1 of 3 were asked whether they are enabled"


def test_a_loop_caught_between_two_runs_is_asked_and_a_missing_unit_is_not_listed(tmp_path: Path) -> None:
    rows = [
        unit_row("between.service", "inactive", "dead", job=17),
        unit_row("between254.service", "inactive", "dead-before-auto-restart"),
        unit_row("stopped.service", "inactive", "dead"),
        unit_row("missing.service", "inactive", "dead", load="not-found"),
        unit_row("removed-but-running.service", load="not-found"),
    ]
    with served(tmp_path, bus(manager(rows, healthy))):
        seen, _ = read(str(tmp_path))
    assert {name: row["restarts"] for name, row in seen.items()} == {
        "between.service": 4,
        "between254.service": 4,
        "stopped.service": -1,
        "removed-but-running.service": 4,
    }


def test_only_units_in_trouble_and_a_few_others_are_asked_who_needs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "A_FEW", 2)

    def get(message: Message) -> Message:
        if message.body[1] == "NRestarts":
            return new_method_return(message, "v", (("u", 0),))
        return healthy(message)

    rows = [unit_row(f"fine{i}.service") for i in range(3)] + [unit_row("bad.service", "failed", "failed")]
    reader = units.Units(Root(str(tmp_path)), thorough=False)
    recording = Recording(Node("node", "boot", "6.18", "v1", 2))
    with served(tmp_path, bus(manager(rows, get))):
        assert sentences(reader.read(recording, 7)) == ""
    known = {row["unit"]: (row["enabled"], row["needed_by"]) for row in recording["units"].rows()}
    asked = ("enabled", "other.service")
    assert known == {"fine0.service": asked, "fine1.service": asked, "fine2.service": ("", "?"), "bad.service": asked}


def test_a_target_that_wants_a_unit_does_not_need_it_and_silence_is_not_nobody() -> None:
    asked: dict[str, object] = {question: [] for question in QUESTIONS}
    assert needed_by(asked) == ""
    assert needed_by(asked | {"WantedBy": ["multi-user.target"]}) == ""
    assert needed_by(asked | {"RequiredBy": ["ray.target"]}) == "ray.target"
    assert needed_by(asked | {"TriggeredBy": ["b.timer"], "WantedBy": ["a.service"]}) == "a.service b.timer"
    assert needed_by({}) == needed_by(asked | {"RequiredBy": None}) == "?"


@given(st.dictionaries(st.sampled_from(QUESTIONS), st.one_of(st.none(), st.lists(st.one_of(texts, st.integers())))))
def test_any_answer_about_needs_is_names_apart_by_a_space(known: dict[str, object]) -> None:
    told = needed_by(known)
    assert told == " ".join(told.split())
    assert len(told.split()) <= 32


def test_asking_starts_nothing(tmp_path: Path) -> None:
    flags = []

    def get(message: Message) -> Message:
        flags.append(message.header.flags)
        return healthy(message)

    with served(tmp_path, bus(manager([unit_row("a.service")], get))):
        read(str(tmp_path))
    assert flags
    assert all(flag & 2 for flag in flags)  # NO_AUTO_START


def test_the_bus_of_the_environment_is_ours_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # keeps the address short
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=run/dbus/system_bus_socket,guid=0123")
    with served(tmp_path, bus(manager([unit_row("a.service")], healthy))):
        assert read("/")[0].keys() == {"a.service"}
    with pytest.raises(Unreadable, match="systemd is not running here"):
        read(str(tmp_path / "elsewhere"))


@pytest.mark.parametrize("address", ["nonsense", "tcp:host=localhost,port=1", "unix:path", "unix:path=" + "x" * 200, ";"])
def test_an_address_that_is_none_is_named(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", address)
    with pytest.raises(Unreadable, match="DBUS_SYSTEM_BUS_ADDRESS"):
        read("/")


# Bytes from anywhere.

orders = st.sampled_from([Endianness.little, Endianness.big])


def reply(order: Endianness, signature: str, body: tuple[Any, ...]) -> bytes:
    fields = {HeaderFields.reply_serial: 5, HeaderFields.sender: ":1.3", HeaderFields.signature: signature}
    return bytes(Message(Header(order, MessageType.method_return, 1, 1, 0, 7, fields), body).serialise(9))


@pytest.mark.parametrize("number", [0x2928, 0x2829, 0x29280000, 0x28290000, 0x292800, 0x28292829])
@pytest.mark.parametrize("order", [Endianness.little, Endianness.big])
def test_numbers_whose_bytes_look_like_an_empty_struct_are_numbers(order: Endianness, number: int) -> None:
    fields = {HeaderFields.reply_serial: number, HeaderFields.sender: ":1.3", HeaderFields.signature: "s"}
    raw = Message(Header(order, MessageType.method_return, 1, 1, 0, number, fields), ("()",)).serialise(number)
    assert dbus.parse(bytes(raw)) == dbus.Reply(number, "", "()")


def test_more_of_what_looks_like_empty_structs_than_numbers_can_explain_is_refused() -> None:
    fields = b"\x01\x01s\0" + (8192).to_bytes(4, "little") + b"()" * 4096 + b"\0"
    raw = b"l\2\1\1" + bytes(4) + (1).to_bytes(4, "little") + len(fields).to_bytes(4, "little") + fields
    with pytest.raises(Unreadable, match="speak D-Bus"):
        dbus.parse(raw)


@given(st.lists(st.tuples(*[texts] * 6, st.just("/a"), st.integers(0, 2**32 - 1), texts, st.just("/")), max_size=5), orders)
def test_a_list_of_units_is_read_as_it_was_written(rows: list[tuple[Any, ...]], order: Endianness) -> None:
    raw = reply(order, "a(ssssssouso)", (rows,))
    assert dbus.message_size(raw) == len(raw)
    assert dbus.parse(raw) == dbus.Reply(5, "", rows)


@given(
    st.one_of(
        texts.map(lambda v: ("s", v)),
        st.integers(0, 2**32 - 1).map(lambda v: ("u", v)),
        st.integers(-(2**31), 2**31 - 1).map(lambda v: ("i", v)),
        st.lists(texts, max_size=4).map(lambda v: ("as", v)),
    ),
    orders,
)
def test_a_property_is_read_as_it_was_written(value: tuple[str, object], order: Endianness) -> None:
    assert dbus.parse(reply(order, "v", (value,))) == dbus.Reply(5, "", value[1])


def test_a_property_of_a_type_that_was_not_asked_for_is_left_alone() -> None:
    assert dbus.parse(reply(Endianness.little, "v", (("a{sv}", {"a": ("s", "b")}),))).body is None


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_unreadable(raw: bytes) -> None:
    with contextlib.suppress(Unreadable):
        dbus.message_size(raw)
    with contextlib.suppress(Unreadable):
        dbus.parse(raw)


@given(st.data())
def test_a_message_with_bytes_changed_or_cut_is_a_message_or_unreadable(data: st.DataObject) -> None:
    raw = bytearray(reply(Endianness.little, "a(ssssssouso)", ([unit_row("a.service")] * 2,)))
    for position in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=8)):
        raw[position] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    with contextlib.suppress(Unreadable):
        dbus.message_size(raw[:cut])
    with contextlib.suppress(Unreadable):
        dbus.parse(bytes(raw[:cut]))


def exhaust(connection: dbus.Bus) -> None:
    while True:
        connection.receive()


@given(st.binary(max_size=300))
def test_a_stream_of_any_bytes_ends_as_unreadable(raw: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.sendall(raw)
        connection = dbus.Bus(ours, time.monotonic() + 30)
        with pytest.raises(Unreadable):
            exhaust(connection)
