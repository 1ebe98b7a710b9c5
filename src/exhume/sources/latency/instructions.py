"""Pieces of programs that count: what the programs on frequent and on rare events have in common."""

from exhume.kernel.bpf import R0, R1, R2, R3, R4, Address, Builder, Helper, Register
from exhume.kernel.bpf.builder import HasFd
from exhume.kernel.bpf.maps import ANY, NO_EXIST


def leave(p: Builder) -> None:
    """The end of a program, to which all of it may jump."""
    p.label("leave")
    p.exit(0)


def increment(p: Builder, counter: Address) -> None:
    p.load(R1, counter)
    p.add(R1, 1)
    p.store(counter, R1)


def note(p: Builder, table: HasFd, key: Address, time: Register) -> None:
    """Write a time down in a table, in place if there is an entry: much cheaper than to make one."""
    known, done = f"known {len(p)}", f"noted {len(p)}"
    p.lookup(table, key)
    p.jump_if(R0, "!=", 0, known)
    value = p.stack(8)
    p.store(value, time)
    p.mov(R3, value)
    _update(p, table, key, ANY)
    p.jump(done)
    p.label(known)
    p.store(R0 + 0, time)
    p.label(done)


def find_or_make(p: Builder, table: HasFd, key: Address, blank: HasFd, control: HasFd, unkept: int) -> None:
    """R0 = the entry of the key, R1 = whether it was made from `blank`; where there is no room, the one in `control` that
    counts those is raised, and the program left."""
    p.lookup(table, key)
    p.mov(R1, 0)
    p.jump_if(R0, "!=", 0, "found")
    p.address_of(R3, blank)
    _update(p, table, key, NO_EXIST)
    p.lookup(table, key)
    p.mov(R1, 1)
    p.jump_if(R0, "!=", 0, "found")
    p.address_of(R0, control)
    p.mov(R1, 1)
    p.atomic_add(R0 + unkept, R1)
    p.jump("leave")
    p.label("found")


def _update(p: Builder, table: HasFd, key: Address, flags: int) -> None:
    """The value is where R3 points to."""
    p.mov(R2, key)
    p.mov(R4, flags)
    p.map_fd(R1, table.fd)
    p.call(Helper.map_update_elem)
