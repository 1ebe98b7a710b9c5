"""Protocol buffers, read: as little as it takes to look at what was written, and strict about it."""

from collections.abc import Iterator

Value = int | bytes


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        assert shift <= 70, "a varint has at most ten bytes"
        if byte < 0x80:
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, Value]]:
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        assert key >> 3, "0 is no field"
        if key & 7 == 0:
            value, at = varint(data, at)
            yield key >> 3, value
        else:
            assert key & 7 == 2, f"field {key >> 3} has wire type {key & 7}"
            length, at = varint(data, at)
            assert at + length <= len(data), "a field is longer than its message"
            yield key >> 3, data[at : at + length]
            at += length


class Message:
    """A message by the numbers of its fields."""

    def __init__(self, data: bytes) -> None:
        self.all: dict[int, list[Value]] = {}
        for number, value in fields(data):
            self.all.setdefault(number, []).append(value)

    def __contains__(self, number: int) -> bool:
        return number in self.all

    def number(self, number: int) -> int:
        value = self.all.get(number, [0])[-1]
        assert isinstance(value, int)
        return value

    def text(self, number: int) -> str:
        value = self.all.get(number, [b""])[-1]
        assert isinstance(value, bytes)
        return value.decode()

    def ints(self, number: int) -> list[int]:
        found = []
        for value in self.all.get(number, []):
            if isinstance(value, bytes):
                at = 0
                while at < len(value):
                    one, at = varint(value, at)
                    found.append(one)
            else:
                found.append(value)
        return found

    def texts(self, number: int) -> list[str]:
        return [value.decode() for value in self.all.get(number, []) if isinstance(value, bytes)]

    def messages(self, number: int) -> "list[Message]":
        return [Message(value) for value in self.all.get(number, []) if isinstance(value, bytes)]

    def message(self, number: int) -> "Message":
        found = self.messages(number)
        return found[-1] if found else Message(b"")
