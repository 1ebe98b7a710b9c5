"""BTF made by hand, to the letter of include/uapi/linux/btf.h, for kernels that are not at hand."""

import struct
from dataclasses import dataclass, field

INT, PTR, ARRAY, STRUCT, UNION, ENUM, FWD, TYPEDEF, VOLATILE, CONST = range(1, 11)
TYPE_TAG, ENUM64 = 18, 19


@dataclass
class MadeBtf:
    order: str = "<"
    strings: bytearray = field(default_factory=lambda: bytearray(b"\0"))
    types: bytearray = field(default_factory=bytearray)
    count: int = 0

    def name(self, text: str) -> int:
        if not text:
            return 0
        at = self.strings.find(b"\0" + text.encode() + b"\0")
        if at < 0:
            at = len(self.strings) - 1
            self.strings += text.encode() + b"\0"
        return at + 1

    def add(self, kind: int, name: str, size_or_type: int, *tail: int, vlen: int = 0, flag: int = 0) -> int:
        words = (self.name(name), flag << 31 | kind << 24 | vlen, size_or_type, *(word & 0xFFFF_FFFF for word in tail))
        self.types += struct.pack(f"{self.order}{len(words)}I", *words)
        self.count += 1
        return self.count

    def integer(self, name: str, size: int, bits: int | None = None) -> int:
        return self.add(INT, name, size, 8 * size if bits is None else bits)

    def record(self, name: str, size: int, *members: tuple[str, int, int], kind: int = STRUCT, flag: int = 0) -> int:
        tail = [word for member, number, bit in members for word in (self.name(member), number, bit)]
        return self.add(kind, name, size, *tail, vlen=len(members), flag=flag)

    def raw(self, version: int = 1) -> bytes:
        sizes = (24, 0, len(self.types), len(self.types), len(self.strings))
        return struct.pack(self.order + "HBBIIIII", 0xEB9F, version, 0, *sizes) + self.types + self.strings


def a_kernel(order: str = "<") -> MadeBtf:
    """struct node { int id; union { struct { u64 low; const wide_t high; }; }; u64 slots[3][2]; struct node *next;
    unsigned flag:3; u64 old:5; u64 tail[]; }, an enum and an enum64."""
    b = MadeBtf(order)
    i32 = b.integer("int", 4)
    u64 = b.integer("u64", 8)
    narrow = b.integer("u64", 8, bits=5)
    wide = b.add(TYPEDEF, "wide_t", b.add(VOLATILE, "", b.add(TYPE_TAG, "rcu", u64)))
    const = b.add(CONST, "", wide)
    inner = b.record("", 16, ("low", u64, 0), ("high", const, 64))
    union = b.record("", 16, ("", inner, 0), kind=UNION)
    two = b.add(ARRAY, "", 0, u64, i32, 2)
    three = b.add(ARRAY, "", 0, two, i32, 3)
    pointer = b.add(PTR, "", b.count + 3)
    flexible = b.add(ARRAY, "", 0, u64, i32, 0)
    members = (
        ("id", i32, 0),
        ("", union, 64),
        ("slots", three, 192),
        ("next", pointer, 576),
        ("flag", i32, 3 << 24 | 640),
        ("old", narrow, 704),
        ("tail", flexible, 768),
    )
    b.record("node", 96, *members, flag=1)
    b.add(TYPEDEF, "node_t", b.count)
    b.add(ENUM, "colour", 4, b.name("RED"), 0, b.name("BLUE"), -2, vlen=2, flag=1)
    b.add(ENUM, "", 4, b.name("BIG"), 0xFFFF_FFFF, vlen=1)
    b.add(ENUM64, "", 8, b.name("HUGE"), 5, 1, b.name("LOWEST"), 0, 1 << 31, vlen=2, flag=1)
    return b
