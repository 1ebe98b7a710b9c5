"""Real programs for tests of symbols: compiled here, run in this root or in one of their own, and asked about."""

import contextlib
import itertools
import os
import shutil
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exhume.sources.sampling.user_symbols import Function, Image, UserSymbols

PROGRAM = """
#include <unistd.h>
__attribute__((noinline)) static int inner_static(int x) { __asm__ volatile(""); return x + 1; }
__attribute__((noinline)) int dig_here(int x) { __asm__ volatile(""); return inner_static(x) * 2; }
int main(int argc, char **argv) { int x = dig_here(argc); write(1, "r", 1); for (;;) pause(); return x; }
"""
CPP = """
#include <unistd.h>
namespace pit {
template <class T> struct Spade { __attribute__((noinline)) T dig(T depth) { __asm__ volatile(""); return depth; } };
}
int main(int argc, char **) { int x = pit::Spade<int>().dig(argc); write(1, "r", 1); for (;;) pause(); return x; }
"""
RUST = """
use std::io::Write;
#[inline(never)] fn dig_here(n: u64) -> u64 { std::hint::black_box(n) + 1 }
fn main() {
    let x = dig_here(3);
    std::io::stdout().write_all(b"r").unwrap(); std::io::stdout().flush().unwrap();
    loop { std::thread::park(); if x == 0 { break } }
}
"""


NEW_KEYS = itertools.count(1000)


def compiled(where: Path, text: str, compiler: str = "gcc", *options: str) -> Path:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    source = where / f"source.{ {'gcc': 'c', 'g++': 'cc', 'rustc': 'rs'}[compiler] }"
    source.write_text(text)
    program = where / "program"
    made = subprocess.run([compiler, "-o", program, source, *options], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"{compiler} does not work here: {made.stderr.splitlines()[0]}")
    return program


def offsets(program: Path) -> dict[str, int]:
    """Where functions are in the file, as nm and readelf have it."""
    loads = []
    for line in subprocess.run(["readelf", "-lW", program], capture_output=True, text=True, check=True).stdout.splitlines():
        words = line.split()
        if words[:1] == ["LOAD"]:
            loads.append((int(words[1], 16), int(words[2], 16), int(words[4], 16)))
    found = {}
    for line in subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout.splitlines():
        address, kind, name = line.rsplit(None, 2) if len(line.split()) == 3 else ("0", "", "")
        for offset, start, size in loads:
            if kind in ("T", "t", "W") and start <= int(address, 16) < start + size:
                found[name] = int(address, 16) - start + offset
    return found


@contextlib.contextmanager
def running(*command: str | Path, root: Path | None = None, cwd: Path | None = None) -> Iterator[int]:
    """The pid of a program that has said that it runs."""
    words = [os.fspath(word) for word in command]
    if root is not None:
        if os.geteuid() != 0:
            pytest.skip("needs root, to give a process a root of its own")
        words = ["chroot", str(root), *words]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, cwd=cwd)
    assert process.stdout is not None
    try:
        assert process.stdout.read(1)
        yield process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def image_of(pid: int, name: str) -> Image:
    """The executable mapping whose path has this in it."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        words = line.split(None, 5)
        if len(words) == 6 and "x" in words[1] and name in words[5]:
            major, minor = words[3].split(":")
            return Image("elf", words[5].encode(), (int(major, 16), int(minor, 16)), int(words[4]))
    raise LookupError(name)


def ask(symbols: UserSymbols, image: Image, pid: int, *addresses: int, key: int = 0, wait_s: float = 15.0) -> list[str]:
    """The names at addresses, in their order; each must be answered, by ranges that do not contradict."""
    key = key or next(NEW_KEYS)
    symbols.ask(key, image, [pid], addresses)
    return names(collected(symbols, wait_s), key, *addresses)


def collected(symbols: UserSymbols, wait_s: float = 15.0) -> list[Function]:
    found: list[Function] = []
    until = time.monotonic() + wait_s
    while True:
        found += symbols.answers(0.5)
        if not symbols.pending or time.monotonic() > until:
            return found


def names(functions: list[Function], key: int, *addresses: int) -> list[str]:
    told = []
    for address in addresses:
        holding = {function.name for function in functions if function.key == key and function.start <= address < function.end}
        assert len(holding) == 1, (hex(address), holding)
        told.append(holding.pop())
    return told


def in_a_child(check: Callable[[], bool]) -> bool:
    """What a check says that gives up rights for good."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, about threads: numpy has some, which sleep
        child = os.fork()
    if not child:
        try:
            os._exit(0 if check() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
