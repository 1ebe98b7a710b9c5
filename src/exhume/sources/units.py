"""systemd's services, asked over D-Bus: which run, fail or restart, and in which cgroup. For crash loops and their owners.

Reading must not add to the trouble it looks for: a PID 1 that hangs costs one bounded wait, what is asked is bounded,
and nothing is started by asking (no D-Bus activation).
"""

import errno
import os
import re
import socket
import stat
import struct
import time as clock
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from exhume.errors import NotPresent, Unreadable
from exhume.host.quantities import SECOND, compared, duration, size
from exhume.host.root import Root
from exhume.host.unit_needs import QUESTIONS, UNASKED, needed_by
from exhume.recording.recording import Recording
from exhume.recording.source_state import Limit, Reasons
from exhume.text import decode, printable

BUS = "run/dbus/system_bus_socket"
PRIVATE = "run/systemd/private"

DEADLINE_S = 1.5
"""For one whole reading. A PID 1 that takes longer is part of the trouble, and its partial answer is kept."""

MOST_ASKED = 512
MOST_LOOKED_UP = 128
"""Services asked for UnitFileState, which PID 1 looks up on disk the first time: 1 to 2 ms of its time each, measured."""

MOST_TROUBLED = 32
"""Services asked who needs them, six questions each, about which PID 1 need not look anything up."""

A_FEW = 4
"""Services without trouble that systemd could see, which are asked the same each time: in the end all of them were."""

_LONGEST_LINE = 1 << 10  # of the authentication; real ones are below 100 bytes
LARGEST_MESSAGE = 4 << 20  # ListUnits of 10,000 units is below 3 MiB

# dbus-daemon refuses further calls while 128 of a connection wait for their replies (max_replies_per_connection).
WINDOW = 64

_MANAGER = "org.freedesktop.systemd1"
# Whose objects are not systemd's.
_OTHERS = {"/org/freedesktop/DBus": "org.freedesktop.DBus", "/org/freedesktop/login1": "org.freedesktop.login1"}
_SERVICE = "org.freedesktop.systemd1.Service"
_UNIT = "org.freedesktop.systemd1.Unit"

# Single Gets, because GetAll makes PID 1 read a service's cgroup files and send hundreds of properties: for 111 services
# 42 ms of our CPU time and 7 of PID 1's against 165 and 26. The most telling first, in case time runs out.
_PROPERTIES = ("Result", "ControlGroup", "MainPID")
_PLAIN = (("active", "running"), ("active", "exited"))

_SIGNATURE = re.compile(rb"[a-z(){}]*")
# Of so many in one header, not all are numbers.
_FEW = 16
_NO_DBUS = "what answers on the D-Bus socket does not speak D-Bus"
_UNIT_ROWS = "a(ssssssouso)"
_ANSWERS = {b"s\0": "s", b"u\0": "u", b"i\0": "i", b"t\0": "t", b"as\0": "as"}
_PATH = re.compile("/org/freedesktop/systemd1/unit/[A-Za-z0-9_]+")

Call: TypeAlias = tuple[str, str, str, str, tuple[object, ...]]
"""Object path, interface, member, signature and body."""


@dataclass(frozen=True, slots=True)
class Service:
    """What ListUnits says of one service."""

    unit: str
    active: str
    sub: str
    path: str

    settled: bool
    """Plainly inactive. Between two runs of a crash loop there is a job, or a sub state of its own (`auto-restart`;
    `dead-before-auto-restart` from systemd 254)."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One message from the bus, as far as it concerns us."""

    serial: int
    """Of the call it answers; 0 for signals."""
    error: str
    """Name of the error, "" if it is none."""
    body: object


class Units:
    """Every loaded service; those that are not plainly inactive with what they were doing."""

    name = "units"
    every_ns = 0

    def __init__(self, root: Root, thorough: bool = True) -> None:
        """Not thorough: what costs PID 1 something is only asked of services that restarted or do not plainly run."""
        self._root = root
        self._thorough = thorough
        self._needs: dict[str, tuple[str, str]] = {}
        """Whether it is enabled and who needs it, of those that were asked before."""

    def read(self, recording: Recording, time: int) -> Reasons:
        deadline = clock.monotonic() + DEADLINE_S
        with connected(self._root, deadline) as bus:
            services = list_services(bus)
            asked = sorted((s for s in services if not s.settled), key=lambda s: s.active == "active")
            answers, notes = _properties(bus, asked, self._thorough)
            if not notes and (note := self._ask_needs(bus, asked, answers)):
                notes = (Limit(note),)

        table = recording["units"]
        for service in services:
            known = answers.get(service.unit, {})
            table.add(
                time,
                service.unit,
                service.active,
                service.sub,
                _number(known, "NRestarts", -1),
                _text(known, "Result"),
                _text(known, "UnitFileState") or self._needs.get(service.unit, ("", ""))[0],
                _number(known, "MainPID", 0),
                _text(known, "ControlGroup"),
                self._needs.get(service.unit, ("", UNASKED))[1],
            )
        return notes

    def _ask_needs(self, bus: "Bus", services: list[Service], answers: dict[str, dict[str, object]]) -> str:
        """Who needs those in trouble, and a few others: a unit that starts its program again itself looks well to systemd."""
        troubled = [s for s in services if _troubled(s, answers.get(s.unit, {}))][:MOST_TROUBLED]
        age = {unit: position for position, unit in enumerate(self._needs)}
        others = [s for s in services if (s.active, s.sub) == ("active", "running") and s not in troubled]
        others.sort(key=lambda s: age.get(s.unit, -1))  # whose answer is oldest, once all have been asked
        asked = troubled + others[:A_FEW]
        questions = [(s, _UNIT, name) for s in asked for name in QUESTIONS]
        questions += [(s, _UNIT, "UnitFileState") for s in asked if "UnitFileState" not in answers.get(s.unit, {})]
        note = ask(bus, questions, answers)
        listed = {s.unit for s in services}
        self._needs = {unit: told for unit, told in self._needs.items() if unit in listed}
        for service in asked:
            known = answers.get(service.unit, {})
            self._needs.pop(service.unit, None)
            self._needs[service.unit] = _text(known, "UnitFileState"), needed_by(known)
        return note


def _troubled(service: Service, known: Mapping[str, object]) -> bool:
    return service.active == "failed" or "auto-restart" in service.sub or _number(known, "NRestarts", 0) > 0


class Bus:
    """One connection to a D-Bus server with one deadline for all of it.

    jeepney's own blocking connection says Hello without a time limit and takes messages of any size, so the loop is ours.
    """

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._socket = connection
        self._deadline = deadline
        self._buffer = bytearray()
        self._serial = 0

    def authenticate(self) -> None:
        """EXTERNAL, with our user id, which the server compares with the socket's credentials.

        BEGIN goes along at once, as systemd's own clients do it: PID 1 overlooks a message that it reads together with BEGIN
        until the next one comes, and only a client that waited for OK after BEGIN can be sure to send later.
        """
        from jeepney.auth import BEGIN, make_auth_external

        self._send(b"\0" + make_auth_external() + BEGIN)
        while b"\r\n" not in self._buffer and len(self._buffer) < _LONGEST_LINE:
            self._buffer += self._receive_some(1024)
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        if not line.startswith(b"OK "):
            raise Unreadable(f"the D-Bus server did not let us in: {printable(decode(bytes(line)))}")

    def call(self, path: str, interface: str, member: str, signature: str = "", body: tuple[object, ...] = ()) -> Reply:
        """One call, waited for."""
        serial, raw = self.prepare((path, interface, member, signature, body))
        self._send(raw)
        while (reply := self.receive()).serial != serial:
            pass
        return reply

    def prepare(self, call: Call) -> tuple[int, bytes]:
        """A call as bytes, and the serial number that its reply will carry."""
        from jeepney import DBusAddress, MessageFlag, new_method_call

        path, interface, member, signature, body = call
        name = _OTHERS.get(path, _MANAGER)
        message = new_method_call(DBusAddress(path, name, interface), member, signature or None, body)
        message.header.flags |= MessageFlag.no_auto_start
        self._serial += 1
        return self._serial, message.serialise(self._serial)

    def pipeline(self, calls: Iterable[Call]) -> Iterator[tuple[int, Reply]]:
        """Many calls, up to WINDOW of them under way at once; replies with the position of their call, as they come."""
        waiting: dict[int, int] = {}
        queue = enumerate(calls)
        more = True
        while True:
            if more and len(waiting) <= WINDOW // 2:
                batch = bytearray()
                while len(waiting) < WINDOW and (following := next(queue, None)) is not None:
                    position, call = following
                    serial, raw = self.prepare(call)
                    waiting[serial] = position
                    batch += raw
                more = len(waiting) == WINDOW
                self._send(batch)
            if not waiting:
                return
            reply = self.receive()
            if reply.serial in waiting:
                yield waiting.pop(reply.serial), reply

    def receive(self) -> Reply:
        """The next message, whichever it is."""
        while True:
            size = message_size(self._buffer)
            if size and len(self._buffer) >= size:
                raw = bytes(self._buffer[:size])
                del self._buffer[:size]
                self._left()  # a peer that floods us must not keep us from looking at the clock
                return parse(raw)
            self._buffer += self._receive_some(1 << 16)

    def _send(self, raw: bytes | bytearray) -> None:
        self._socket.settimeout(self._left())
        self._socket.sendall(raw)

    def _receive_some(self, most: int) -> bytes:
        self._socket.settimeout(self._left())
        chunk = self._socket.recv(most)
        if not chunk:
            raise Unreadable("the D-Bus server hung up")
        return chunk

    def _left(self) -> float:
        left = self._deadline - clock.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def message_size(head: bytes | bytearray) -> int:
    """Length of the message that begins here, 0 while too little of it is there (D-Bus specification, Message Format)."""
    if len(head) < 16:
        return 0
    order = {0x6C: "<", 0x42: ">"}.get(head[0])  # 'l' and 'B'
    if order is None or head[3] != 1:
        raise Unreadable(_NO_DBUS)
    body, fields = struct.unpack_from(order + "I4xI", head, 4)
    length = int(16 + (fields + 7 & ~7) + body)
    if length > LARGEST_MESSAGE:
        sent, most = compared(size, length, LARGEST_MESSAGE)
        raise Unreadable(f"the D-Bus server sends a message of {sent}, more than {most} are refused")
    return length


def _empty_struct(fields: bytes) -> bool:
    """Whether a signature among the fields of a header has an empty struct, which no valid one has, and of an array of which
    jeepney never gets to the end. The same bytes may be a number: the 10,536th message has them as its serial."""
    at, found = fields.find(b"()"), 0
    while at >= 0 and found < _FEW:
        for start in range(max(1, at - 253), at + 1):
            end = start + fields[start - 1]  # a signature has its length before it, and ends with a zero
            if at + 2 <= end < len(fields) and fields[end] == 0 and _SIGNATURE.fullmatch(fields, start, end):
                return True
        at, found = fields.find(b"()", at + 1), found + 1
    return at >= 0


def parse(raw: bytes) -> Reply:
    """One whole message. Only bodies of the forms that we ask for are looked into."""
    from jeepney.low_level import Header, HeaderFields, MessageType, parse_signature

    try:
        if _empty_struct(raw[16 : 16 + struct.unpack_from("<I" if raw[0] == 0x6C else ">I", raw, 12)[0]]):
            raise ValueError("an empty struct")
        header, position = Header.from_buffer(raw)
        serial = header.fields.get(HeaderFields.reply_serial, 0)
        error = header.fields.get(HeaderFields.error_name, "") if header.message_type is MessageType.error else ""
        signature = header.fields.get(HeaderFields.signature, "")
        position += -position % 8
        if signature == "v":
            # The same care for a variant's own signature, which our questions know beforehand.
            length = raw[position] if position < len(raw) else 0
            signature = _ANSWERS.get(raw[position + 1 : position + 2 + length], "")
            position += 2 + length
        body = None
        if signature in ("s", "u", "i", "t", "as", _UNIT_ROWS):
            body = parse_signature([*signature]).parse_data(raw, position, header.endianness)[0]
    except Exception:  # whatever a third party's parser makes of hostile bytes
        raise Unreadable(_NO_DBUS) from None
    if not isinstance(serial, int) or not isinstance(error, str):
        raise Unreadable(_NO_DBUS)
    return Reply(serial, error, body)


@contextmanager
def connected(root: Root, deadline: float) -> Iterator[Bus]:
    """A bus that can be asked. Everything that can go wrong on the way, and while it is used, ends as Unreadable."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
        try:
            connection.settimeout(DEADLINE_S)
            private = _connect(connection, root)
            bus = Bus(connection, deadline)
            bus.authenticate()
            if not private:
                hello = bus.call("/org/freedesktop/DBus", "org.freedesktop.DBus", "Hello")
                if hello.error:
                    raise Unreadable(f"the D-Bus server did not let us in: {_complaint(hello)}")
            yield bus
        except TimeoutError:
            raise Unreadable(f"no answer over D-Bus within {duration(DEADLINE_S * SECOND)}") from None
        except OSError as error:
            raise Unreadable(f"D-Bus failed: {os.strerror(error.errno or 0)}") from None


def _connect(connection: socket.socket, root: Root) -> bool:
    """Connect to the system bus or, where there is none, to PID 1; True for PID 1, to which one says no Hello."""
    address = os.environ.get("DBUS_SYSTEM_BUS_ADDRESS", "") if root.own else ""
    if address:
        connection.connect(_address(address))
        return False
    try:
        _connect_to(connection, root, BUS)
        return False
    except OSError as error:
        if error.errno == errno.EAGAIN:  # the backlog is full (unix(7))
            raise Unreadable(f"the D-Bus server at /{BUS} takes no connections: it may hang") from None
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ECONNREFUSED):
            raise Unreadable(f"/{BUS}: {os.strerror(error.errno or 0)}") from None
        absent = error.errno != errno.ECONNREFUSED
    # PID 1 takes root only, and resets whoever it cannot see in its own PID namespace.
    if os.geteuid() == 0:
        try:
            _connect_to(connection, root, PRIVATE)
            return True
        except OSError:
            pass
    if not absent:
        raise Unreadable(f"no D-Bus server listens at /{BUS}")
    if not booted(root):
        raise NotPresent("systemd is not running here")
    raise Unreadable(f"no D-Bus socket at /{BUS} (the agent's chart and unit leave it out unless it is asked for)")


def booted(root: Root) -> bool:
    """What sd_booted(3) asks."""
    try:
        os.close(root.open_itself("run/systemd/system", os.O_PATH | os.O_DIRECTORY))
    except OSError:
        return False
    return True


def _connect_to(connection: socket.socket, root: Root, name: str) -> None:
    """Connect by a descriptor, because a socket's address has room for a path of 107 bytes only (unix(7))."""
    fd = root.open_itself(name, os.O_PATH)
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            raise Unreadable(f"/{name} is not a socket")
        connection.connect(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def _address(text: str) -> str:
    from jeepney.bus import get_bus

    try:
        address = get_bus(text)
    except (ValueError, RuntimeError, StopIteration):
        raise Unreadable(f"DBUS_SYSTEM_BUS_ADDRESS is no address of a Unix socket: {printable(text)}") from None
    if not isinstance(address, str) or "\0" in address[1:] or len(os.fsencode(address)) > 107:
        raise Unreadable(f"DBUS_SYSTEM_BUS_ADDRESS is no address of a Unix socket: {printable(text)}")
    return address


def list_services(bus: Bus) -> list[Service]:
    manager = "org.freedesktop.systemd1.Manager"
    try:
        # By pattern, because a node with many pods has thousands of mounts and scopes. systemd before 230 cannot.
        reply = bus.call("/org/freedesktop/systemd1", manager, "ListUnitsByPatterns", "asas", ([], ["*.service"]))
        if reply.error == "org.freedesktop.DBus.Error.UnknownMethod":
            reply = bus.call("/org/freedesktop/systemd1", manager, "ListUnits")
    except TimeoutError:
        raise Unreadable(f"systemd did not answer within {duration(DEADLINE_S * SECOND)}: PID 1 may hang") from None
    if reply.error:
        raise Unreadable(f"systemd did not list its units: {_complaint(reply)}")
    if not isinstance(reply.body, list):
        raise Unreadable("systemd did not list its units: its answer has another form")
    services = []
    for unit, _, load, active, sub, _, path, job, _, _ in reply.body:
        settled = active == "inactive" and sub == "dead" and not job
        if not _PATH.fullmatch(path):
            raise Unreadable("systemd did not list its units: its answer has another form")
        if unit.endswith(".service") and not (settled and load == "not-found"):
            services.append(Service(unit, active, sub, path, settled))
    return services


def _properties(bus: Bus, services: list[Service], thorough: bool) -> tuple[dict[str, dict[str, object]], Reasons]:
    """What each service says of itself, and notes when that is not all of it. The most telling is asked first."""
    answers: dict[str, dict[str, object]] = {}
    asked = services[:MOST_ASKED]
    note = ask(bus, [(service, _SERVICE, "NRestarts") for service in asked], answers)
    odd = [
        s for s in asked if thorough or (s.active, s.sub) not in _PLAIN or _number(answers.get(s.unit, {}), "NRestarts", 0) > 0
    ]
    if not note:
        questions = [(service, _SERVICE, name) for name in _PROPERTIES for service in odd]
        questions += [(service, _UNIT, "UnitFileState") for service in odd[:MOST_LOOKED_UP]]
        note = ask(bus, questions, answers)
    notes = [note] if note else []
    if len(services) > MOST_ASKED:
        notes.append(f"only {MOST_ASKED} of {len(services)} services that are not inactive were asked")
    if len(odd) > MOST_LOOKED_UP:
        notes.append(f"only {MOST_LOOKED_UP} of {len(odd)} were asked whether they are enabled")
    return answers, tuple(map(Limit, notes))


def ask(bus: Bus, questions: list[tuple[Service, str, str]], answers: dict[str, dict[str, object]]) -> str:
    """Put many questions, keep what is answered; "" or why it is not all."""
    replies = 0
    try:
        calls = ((s.path, "org.freedesktop.DBus.Properties", "Get", "ss", (i, name)) for s, i, name in questions)
        for position, reply in bus.pipeline(calls):
            replies += 1
            service, _, name = questions[position]
            if not reply.error:  # systemd before 235 has no NRestarts; a unit can be gone by now
                answers.setdefault(service.unit, {})[name] = reply.body
    except TimeoutError:
        why = f"within {duration(DEADLINE_S * SECOND)}"
    except Unreadable as error:
        why = f"because {error}"
    except OSError as error:
        why = f"because the connection broke: {os.strerror(error.errno or 0)}"
    else:
        return ""
    return f"systemd answered only {replies} of {len(questions)} questions about its services {why}"


def _complaint(reply: Reply) -> str:
    message = reply.body if isinstance(reply.body, str) else ""
    return printable(f"{reply.error}: {message}" if message else reply.error)


def _number(known: Mapping[str, object], name: str, default: int) -> int:
    value = known.get(name)
    return value if isinstance(value, int) else default


def _text(known: Mapping[str, object], name: str) -> str:
    value = known.get(name)
    return value if isinstance(value, str) else ""
