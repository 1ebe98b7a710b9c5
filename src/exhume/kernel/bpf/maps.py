"""Memory shared with BPF programs: a plain block, arrays, hashes and stacks, one value for all CPUs or one for each."""

import ctypes
import errno
import mmap
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from exhume.kernel.bpf.features import HERE, MMAPABLE, Features
from exhume.kernel.bpf.syscall import (
    ENOTSUPP,
    BpfError,
    Buffer,
    Command,
    Handle,
    MapKind,
    address,
    attributes,
    bpf,
    create_map,
    error,
)

ANY, NO_EXIST, EXIST = 0, 1, 2  # flags of an update in include/uapi/linux/bpf.h

POSSIBLE_CPUS: Final = "/sys/devices/system/cpu/possible"
_BATCH_BYTES = 1 << 20

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """How keys or values are told to the kernel and back."""

    to_bytes: Callable[[T], bytes]
    from_bytes: Callable[[bytes], T]


class Map(Handle, Generic[K, V]):
    """What all maps can do. Plain keys and values are bytes, numbers in them are in the machine's byte order."""

    def __init__(
        self,
        kind: MapKind,
        key_size: int,
        value_size: int,
        entries: int,
        keys: Codec[K],
        values: Codec[V],
        *,
        copies: int | None = None,
        flags: int = 0,
        features: Features = HERE,
    ) -> None:
        self.kind, self.key_size, self.value_size, self.entries = kind, key_size, value_size, entries
        self._keys, self._values, self._features = keys, values, features
        self._bytes = value_size if copies is None else copies * _aligned(value_size)
        try:
            super().__init__(create_map(kind, key_size, value_size, entries, flags))
        except OSError as refused:
            what = f"creating a BPF {kind.name} map of {entries} entries with {value_size} bytes each"
            raise error(what, refused) from None

    def lookup(self, key: K) -> V | None:
        value = ctypes.create_string_buffer(self._bytes)
        there = self._try(Command.MAP_LOOKUP_ELEM, self._packed(key), address(value))
        return self._values.from_bytes(value.raw) if there else None

    def update(self, key: K, value: V, flags: int = ANY) -> bool:
        """Whether it was done: not, if NO_EXIST or EXIST was asked for and is not so."""
        raw = self._values.to_bytes(value)
        if len(raw) != self._bytes:
            raise ValueError(f"a value of this map has {self._bytes} bytes, not {len(raw)}")
        room = ctypes.create_string_buffer(raw, len(raw))
        return self._try(Command.MAP_UPDATE_ELEM, self._packed(key), address(room), flags)

    def delete(self, key: K) -> bool:
        """Whether it was there."""
        return self._try(Command.MAP_DELETE_ELEM, self._packed(key))

    def snapshot(self) -> dict[K, V]:
        """All entries. Programs go on writing meanwhile: an entry that comes or goes may be in it or not."""
        if self._next_key(None) is None:  # the common case for those who look each second needs no room for all that could be
            return {}
        raw = self._all_in_batches() if self._features.batch_lookup else None
        if raw is None:
            raw = self._all_one_by_one()
        return {self._keys.from_bytes(key): self._values.from_bytes(value) for key, value in raw.items()}

    def _packed(self, key: K) -> Buffer:
        raw = self._keys.to_bytes(key)
        if len(raw) != self.key_size:
            raise ValueError(f"a key of this map has {self.key_size} bytes, not {len(raw)}")
        return ctypes.create_string_buffer(raw, len(raw))

    def _try(self, command: Command, key: Buffer, value: int = 0, flags: int = 0) -> bool:
        try:
            bpf(command, attributes("IxxxxQQQ", self.fd, address(key), value, flags))
        except OSError as refused:
            if refused.errno in (errno.ENOENT, errno.EEXIST):
                return False
            raise error(f"{command.name} of a BPF {self.kind.name} map", refused) from None
        return True

    def _all_one_by_one(self) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        value = ctypes.create_string_buffer(self._bytes)
        key: Buffer | None = None
        # A key that is deleted under our hands sends the kernel back to the first one, so the steps are counted.
        for _ in range(4 * self.entries + 1):
            key = self._next_key(key)
            if key is None:
                break
            if self._try(Command.MAP_LOOKUP_ELEM, key, address(value)):
                found[key.raw] = value.raw
        return found

    def _next_key(self, last: Buffer | None) -> Buffer | None:
        """The one behind another, or the first; None if there is none."""
        key = ctypes.create_string_buffer(self.key_size)
        try:
            at = 0 if last is None else address(last)
            bpf(Command.MAP_GET_NEXT_KEY, attributes("IxxxxQQ", self.fd, at, address(key)))
        except FileNotFoundError:
            return None
        except OSError as refused:
            raise error(f"reading a BPF {self.kind.name} map", refused) from None
        return key

    def _all_in_batches(self) -> dict[bytes, bytes] | None:
        """None if this kind of map cannot be read so."""
        found: dict[bytes, bytes] = {}
        token = ctypes.create_string_buffer(max(8, self.key_size))
        started = False
        count = max(1, min(self.entries, _BATCH_BYTES // (self.key_size + self._bytes)))
        while True:
            keys = ctypes.create_string_buffer(count * self.key_size)
            values = ctypes.create_string_buffer(count * self._bytes)
            at = address(token)
            attr = attributes("QQQQIIQQ", at if started else 0, at, address(keys), address(values), count, self.fd, 0, 0)
            code = 0
            try:
                bpf(Command.MAP_LOOKUP_BATCH, attr)
            except OSError as refused:
                code = refused.errno or 0
                if code in (ENOTSUPP, errno.EINVAL, errno.EOPNOTSUPP):
                    return None
                if code == errno.ENOSPC and count <= self.entries:  # one bucket of the hash holds more than that
                    count *= 2
                    continue
                if code != errno.ENOENT:
                    raise error(f"reading a BPF {self.kind.name} map", refused) from None
            got = int(struct.unpack_from("=I", attr, 32)[0])
            all_keys, all_values = keys.raw, values.raw
            for index in range(min(got, count)):
                key = all_keys[index * self.key_size : (index + 1) * self.key_size]
                found[key] = all_values[index * self._bytes : (index + 1) * self._bytes]
            started = True
            if code or not got:
                return found


class Hash(Map[bytes, bytes]):
    """Values by key. With `lru` a full map drops what was not used for longest instead of refusing."""

    def __init__(self, key_size: int, value_size: int, entries: int, *, lru: bool = False, features: Features = HERE) -> None:
        kind = MapKind.LRU_HASH if lru else MapKind.HASH
        super().__init__(kind, key_size, value_size, entries, _PLAIN, _PLAIN, features=features)


class Array(Map[int, bytes]):
    """Values by index, all there from the beginning, all zero; none can be deleted."""

    def __init__(self, value_size: int, entries: int, *, flags: int = 0, features: Features = HERE) -> None:
        super().__init__(MapKind.ARRAY, 4, value_size, entries, _INDEX, _PLAIN, flags=flags, features=features)


class PerCpuHash(Map[bytes, tuple[bytes, ...]]):
    """Values by key, one for each possible CPU, which a program changes without locks."""

    def __init__(self, key_size: int, value_size: int, entries: int, *, lru: bool = False, features: Features = HERE) -> None:
        kind = MapKind.LRU_PERCPU_HASH if lru else MapKind.PERCPU_HASH
        copies = possible_cpus()
        super().__init__(kind, key_size, value_size, entries, _PLAIN, _per_cpu(value_size), copies=copies, features=features)


class PerCpuArray(Map[int, tuple[bytes, ...]]):
    """Values by index, one for each possible CPU."""

    def __init__(self, value_size: int, entries: int, *, features: Features = HERE) -> None:
        kind = MapKind.PERCPU_ARRAY
        copies = possible_cpus()
        super().__init__(kind, 4, value_size, entries, _INDEX, _per_cpu(value_size), copies=copies, features=features)


class StackTraces(Map[int, tuple[int, ...]]):
    """Call chains by the number that the helper get_stackid gave for them, innermost address first."""

    def __init__(self, depth: int, entries: int, *, features: Features = HERE) -> None:
        super().__init__(MapKind.STACK_TRACE, 4, 8 * depth, entries, _INDEX, _CHAIN, features=features)


class Block:
    """One piece of memory, ours and the program's. Mapped where the kernel can; read and written by system calls where not."""

    def __init__(self, size: int, *, features: Features = HERE) -> None:
        self.size = size
        self._array = Array(size, 1, flags=MMAPABLE if features.mmapable_arrays else 0, features=features)
        self._memory: mmap.mmap | None = None
        if features.mmapable_arrays:
            try:
                self._memory = mmap.mmap(self._array.fd, -size // mmap.PAGESIZE * -mmap.PAGESIZE)
            except (OSError, ValueError) as refused:
                self._array.close()
                raise BpfError(f"{size} bytes of a BPF map cannot be mapped: {refused}") from None

    @property
    def fd(self) -> int:
        return self._array.fd

    def read(self, offset: int = 0, size: int | None = None) -> bytes:
        """A copy of what is there now."""
        end = self.size if size is None else offset + size
        self._check(offset, end)
        if self._memory is not None:
            return self._memory[offset:end]
        return self._looked_up()[offset:end]

    def write(self, data: bytes, offset: int = 0) -> None:
        self._check(offset, offset + len(data))
        if self._memory is not None:
            self._memory[offset : offset + len(data)] = data
        else:
            whole = self._looked_up() if len(data) < self.size else b""
            self._array.update(0, whole[:offset] + data + whole[offset + len(data) :])

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()
        self._array.close()

    def __enter__(self) -> "Block":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _looked_up(self) -> bytes:
        value = self._array.lookup(0)
        if value is None:
            raise BpfError("the only entry of a BPF array is not there")
        return value

    def _check(self, start: int, end: int) -> None:
        if not 0 <= start <= end <= self.size:
            raise ValueError(f"bytes {start} to {end} are not within a block of {self.size}")


def possible_cpus(path: str = POSSIBLE_CPUS) -> int:
    """How many values a per-CPU map has: one for each CPU that could ever be, present or not."""
    try:
        with open(path, encoding="ascii") as file:
            ranges = [part.split("-") for part in file.read().strip().split(",")]
        return sum(int(part[-1]) - int(part[0]) + 1 for part in ranges)
    except (OSError, ValueError):
        raise BpfError(f"{path} does not say how many CPUs there can be") from None


def _aligned(size: int) -> int:
    """A value for each CPU is handed over in steps of eight bytes (bpf_percpu_array_copy in kernel/bpf/arraymap.c)."""
    return -size // 8 * -8


def _per_cpu(size: int) -> Codec[tuple[bytes, ...]]:
    step = _aligned(size)
    return Codec(
        lambda values: b"".join(value.ljust(step, b"\0") for value in values),
        lambda raw: tuple(raw[at : at + size] for at in range(0, len(raw), step)),
    )


def _chain_to_bytes(_: tuple[int, ...]) -> bytes:
    raise TypeError("only the kernel adds stack traces")


_PLAIN: Final[Codec[bytes]] = Codec(bytes, bytes)
_INDEX: Final[Codec[int]] = Codec(lambda index: struct.pack("=I", index), lambda raw: int.from_bytes(raw, sys.byteorder))
_CHAIN: Final[Codec[tuple[int, ...]]] = Codec(
    _chain_to_bytes, lambda raw: tuple(word for (word,) in struct.iter_unpack("=Q", raw) if word)
)
