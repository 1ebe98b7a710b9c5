"""D-Bus, asked within a deadline: systemd's manager and logind, over the system bus or PID 1's own socket.

Asking must not add to the trouble that is looked for: a PID 1 that hangs costs one bounded wait, messages are bounded, and
nothing is started by asking (no D-Bus activation).
"""

import errno
import os
import re
import socket
import stat
import struct
import time as clock
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from exhume.errors import NotPresent, Unreadable
from exhume.host.quantities import SECOND, compared, duration, size
from exhume.host.root import Root
from exhume.text import decode, printable

BUS = "run/dbus/system_bus_socket"
PRIVATE = "run/systemd/private"

DEADLINE_S = 1.5
"""For one whole reading. A PID 1 that takes longer is part of the trouble, and its partial answer is kept."""

_LONGEST_LINE = 1 << 10  # of the authentication; real ones are below 100 bytes
LARGEST_MESSAGE = 4 << 20  # ListUnits of 10,000 units is below 3 MiB
# dbus-daemon refuses further calls while 128 of a connection wait for their replies (max_replies_per_connection).
WINDOW = 64
_MANAGER = "org.freedesktop.systemd1"
# Whose objects are not systemd's.
_OTHERS = {"/org/freedesktop/DBus": "org.freedesktop.DBus", "/org/freedesktop/login1": "org.freedesktop.login1"}
_SIGNATURE = re.compile(rb"[a-z(){}]*")
# Of so many in one header, not all are numbers.
_FEW = 16
_NO_DBUS = "what answers on the D-Bus socket does not speak D-Bus"
_UNIT_ROWS = "a(ssssssouso)"
_ANSWERS = {b"s\0": "s", b"u\0": "u", b"i\0": "i", b"t\0": "t", b"as\0": "as"}

Call: TypeAlias = tuple[str, str, str, str, tuple[object, ...]]
"""Object path, interface, member, signature and body."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One message from the bus, as far as it concerns us."""

    serial: int
    """Of the call it answers; 0 for signals."""
    error: str
    """Name of the error, "" if it is none."""
    body: object


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
            length = message_size(self._buffer)
            if length and len(self._buffer) >= length:
                raw = bytes(self._buffer[:length])
                del self._buffer[:length]
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
                    raise Unreadable(f"the D-Bus server did not let us in: {complaint(hello)}")
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
        os.close(root.open("run/systemd/system", os.O_PATH | os.O_DIRECTORY))
    except OSError:
        return False
    return True


def _connect_to(connection: socket.socket, root: Root, name: str) -> None:
    """Connect by a descriptor, because a socket's address has room for a path of 107 bytes only (unix(7))."""
    fd = root.open(name, os.O_PATH)
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


def complaint(reply: Reply) -> str:
    message = reply.body if isinstance(reply.body, str) else ""
    return printable(f"{reply.error}: {message}" if message else reply.error)
