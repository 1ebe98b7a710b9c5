"""Samples as OpenTelemetry profiles: what its collector takes at /v1development/profiles.

Numbers of fields are those of opentelemetry/proto/profiles/v1development/profiles.proto and
collector/profiles/v1development/profiles_service.proto, as the Python package opentelemetry-proto 1.45.2 has them; earlier
layouts had no table of stacks. The format is not yet stable.
"""

import hashlib
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from exhume import __version__
from exhume.exports.protobuf import message, number, packed, text, varint
from exhume.exports.subject import Frame, Labels, Row, Subject

_MAPPINGS, _LOCATIONS, _FUNCTIONS, _LINKS, _STRINGS, _ATTRIBUTES, _STACKS = 1, 2, 3, 4, 5, 6, 7
_FIXED64 = 1


class _Table:
    """Numbers for what is the same; number 0 is the empty one, by the format."""

    def __init__(self) -> None:
        self._known: dict[object, int] = {}
        self.written = [b""]

    def __call__(self, key: object, make: Callable[[], bytes]) -> int:
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self.written)
            self.written.append(make())
        return found


class _Dictionary:
    def __init__(self, frames: Sequence[Frame]) -> None:
        self._frames = frames
        self._texts = _Table()
        self._mappings, self._locations, self._functions = _Table(), _Table(), _Table()
        self._attributes, self._stacks = _Table(), _Table()
        self._places: dict[int, int] = {}
        """The location of each frame."""

    def text(self, value: str) -> int:
        return self._texts(value, lambda: value.encode("utf-8", "backslashreplace")) if value else 0

    def attribute(self, key: str, value: str | int) -> int:
        made = text(1, value) if isinstance(value, str) else number(3, value)
        return self._attributes((key, value), lambda: number(1, self.text(key)) + message(2, made))

    def stack(self, stack: tuple[int, ...]) -> int:
        """The function that ran comes first."""
        places = self._places
        for frame in stack:
            if frame not in places:
                places[frame] = self._locations(frame, lambda frame=frame: self._where(self._frames[frame]))  # type: ignore[misc]
        return self._stacks(stack, lambda: packed(1, [places[frame] for frame in reversed(stack)]))

    def _where(self, frame: Frame) -> bytes:
        file = self.text(frame.module)
        mapping = self._mappings(frame.module, lambda: number(4, file)) if frame.module else 0
        function = self._functions(frame, lambda: number(1, self.text(frame.name)) + (number(3, file) if file else b""))
        return (number(1, mapping) if mapping else b"") + message(3, number(1, function))

    def written(self) -> bytes:
        tables = (
            (_MAPPINGS, self._mappings),
            (_LOCATIONS, self._locations),
            (_FUNCTIONS, self._functions),
            (_STRINGS, self._texts),
            (_ATTRIBUTES, self._attributes),
            (_STACKS, self._stacks),
        )
        return message(_LINKS) + b"".join(message(field, one) for field, table in tables for one in table.written)


def write_rows(
    out: Callable[[bytes], object], rows: Iterable[Row], frames: Sequence[Frame], subject: Subject, resource: Labels
) -> int:
    """Gzip, an ExportProfilesServiceRequest. The number of samples. `resource` is said of all of them."""
    dictionary = _Dictionary(frames)
    period = subject.period_ns
    kind = number(1, dictionary.text("cpu" if period else "samples"))
    kind += number(2, dictionary.text("nanoseconds" if period else "count"))
    total, samples = 0, []
    known: dict[Labels, bytes] = {(): b""}
    for labels, stack, count in rows:
        total += count
        if labels not in known:
            known[labels] = packed(2, [dictionary.attribute(key, value) for key, value in labels])
        value = packed(4, (count * (period or 1),))
        samples.append(message(2, number(1, dictionary.stack(stack)), known[labels], value))
    made = b"".join(samples)
    identity = hashlib.sha256(made + repr((resource, subject.start_real, subject.end - subject.start)).encode()).digest()[:16]
    profile = message(1, kind) + made + _fixed64(3, subject.start_real) + number(4, max(0, subject.end - subject.start))
    profile += (message(5, kind) + number(6, period) if period else b"") + message(7, identity)
    scope = message(1, text(1, "exhume"), text(2, __version__)) + message(2, profile)
    request = message(1, message(1, *_attributes(resource)), message(2, scope)) + message(2, dictionary.written())
    packer = zlib.compressobj(wbits=31)
    out(packer.compress(request) + packer.flush())
    return total


def _attributes(labels: Labels) -> Iterator[bytes]:
    """KeyValue of opentelemetry/proto/common/v1/common.proto."""
    for key, value in labels:
        yield message(1, text(1, key), message(2, text(1, value) if isinstance(value, str) else number(3, value)))


def _fixed64(field: int, value: int) -> bytes:
    return varint(field << 3 | _FIXED64) + struct.pack("<Q", value & (1 << 64) - 1)
