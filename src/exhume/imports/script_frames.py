"""A line of a stack as perf script prints it: address, function, offset in it, and the file that it is in.

sample__fprintf_callchain of tools/perf/util/evsel_fprintf.c prints them, the innermost first, each after a tab.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from exhume.text import decode

UNKNOWN = b"[unknown]"
_DIGITS = b"0123456789abcdef"
# Blanks where somebody's terminal had tabs. Behind the address is a blank, or in a listing of instructions a tab (brstackinsn).
_ADDRESS = re.compile(rb"[ \t]*([0-9a-f]{1,16})(?![^ ]) *", re.ASCII)
# What other fields print below a frame or a stack (process_event of tools/perf/builtin-script.c): srcline, srccode; insnlen and
# insn; brstack and brstacksym; iregs and uregs; phys_addr and sizes of pages; cgroup.
_BESIDE = re.compile(
    rb"  (?! ).*(?::\d+(?: \(discriminator \d+\))?|:\?|\[[0-9a-f]+\]|\+\d+)|\|\d+ .*"
    rb"| ilen: \d+.*| insn:.*"
    rb"| {1,17}[^\s/]+/[^\s/]+/[-MPNX.]/.*"
    rb"| +ABI:\d.*"
    rb"| {1,16}[0-9a-f]{1,16}(?: +\d+[BKMGTP]?)*"
    rb"| /.*|\t[^\t]+\t.*",
    re.ASCII,
)
# Without a name, which is plain to read: whole libraries have none.
_UNNAMED = re.compile(rb"\t *([0-9a-f]{1,16}) \[unknown\] \((?!inlined\))([^()]*)\)", re.ASCII)
# Behind a function; perf 6.5 and later print one behind a file as well (-F +dsoff).
_OFFSET = re.compile(rb"\+0x[0-9a-f]+(?= \(|\Z)", re.ASCII)
_PLACE = re.compile(rb"\+0x[0-9a-f]+\Z", re.ASCII)
_PARENTHESES = re.compile(rb"[()]")
# Where code has no frame pointers the chain leads into data. Addresses of the kernel have 16 digits.
NOWHERE_LINE = re.compile(rb"\t *[0-9a-f]{1,15} \[unknown\] \(\[unknown\]\)", re.ASCII)
_INLINED = b" (inlined)"
_DELETED = b" (deleted)"
_HALF = 1 << 63
# What is in brackets is a module of the kernel but for what the kernel maps into processes (arch_vma_name, fs/proc/task_mmu.c)
# and what perf has its own names for.
_USER = re.compile(
    rb"\[(?:vdso|vsyscall|vvar|vectors|sigpage|heap|stack|anon|uprobes|unknown|jit)[^]]*\]", re.ASCII | re.IGNORECASE
)
# tools/perf/util/dso.c and machine.c: the kernel by its symbols, by a file of them, of this machine or of a guest.
_KERNEL = re.compile(rb"(?:.*/)?(?:\[kernel[^/]*|vmlinu[xz][^/]*|kcore|kallsyms|\[guest\.kernel[^/]*)", re.DOTALL)
_MODULE = re.compile(rb"(?:.*/)?([^/]+)\.ko(?:\.(?:gz|xz|zst|bz2|debug))?", re.DOTALL)
_BPF = re.compile(rb"\[?bpf(?:_prog_.*|_trampoline.*|_dispatcher.*|)\]?", re.DOTALL)
_JIT = re.compile(rb".*/perf-\d+\.map|(?:.*/)?jitted-\d+-\d+\.so", re.DOTALL)


class Frame(NamedTuple):
    name: str
    """"" where perf has none."""
    module: str
    space: str
    """kernel or user."""
    offset: int
    """The address, of a frame without a name; -1 otherwise, and for one that is in no file: it leads nowhere."""
    inlined: bool
    """Where it is, the frame that called it says."""


NOWHERE = Frame("", "", "user", -1, False)


def parse(line: bytes) -> Frame | None:
    """A frame; None for what is something else."""
    if (plain := _UNNAMED.fullmatch(line)) is not None:
        address, name, file, inlined = int(plain[1], 16), b"", plain[2], False
    elif (found := _ADDRESS.match(line)) is not None:
        address = int(found[1], 16)
        name, file, inlined = apart(line[found.end() :].rstrip())
    else:
        return None
    module, space = where(file, address)
    if name == UNKNOWN:
        name = b""
    if not name and not inlined and module:
        # As 64 bits with a sign, which is what a recording has: those of the kernel are negative.
        return Frame("", module, space, address - 2 * _HALF if address >= _HALF else address, False)
    return Frame(decode(name), module, space, -1, inlined)


def beside(line: bytes) -> bool:
    """Whether it is of another field than the stack above it."""
    return _BESIDE.fullmatch(line) is not None


def function(line: bytes) -> bytes:
    """The line without address and offset, so that all of one function are the same; b"" where that is not so plain."""
    begin, found, rest = line.partition(b"+0x")
    offset, opened, file = rest.partition(b" (")
    if found and opened and offset.isalnum() and not file.startswith(UNKNOWN):
        address, _, name = begin.lstrip(b" \t").partition(b" ")
        if len(address) <= 16 and not address.strip(_DIGITS):
            return name + b" (" + file
    return b""


def apart(text: bytes) -> tuple[bytes, bytes, bool]:
    """Function and file of `f(int)+0x1f (/usr/lib/a b.so (deleted))`, either of which may be missing; whether it is inlined."""
    if text.endswith(_INLINED):
        return _OFFSET.split(text[: -len(_INLINED)], maxsplit=1)[0], b"", True
    offset = _OFFSET.search(text)
    if offset is not None:
        return text[: offset.start()], text[offset.end() + 2 :].removesuffix(b")"), False
    begin = _opening(text) if text.endswith(b")") else -1
    if begin < 0 or (begin and text[begin - 1 : begin] != b" "):
        return text, b"", False
    return text[:begin].rstrip(), text[begin + 1 : -1], False


def _opening(text: bytes) -> int:
    """Where the parenthesis is opened that is closed at the end; names of files may have one that is not: then the last."""
    depth = 0
    for each in reversed([found.start() for found in _PARENTHESES.finditer(text)]):
        depth += 1 if text[each] == 0x29 else -1
        if not depth:
            return each
    return text.rfind(b" (") + 1 or -1


def where(file: bytes, address: int) -> tuple[str, str]:
    """Module and space as the recorder names them: [kernel], the bare name of a module, the path of a program or library."""
    if not file or file == UNKNOWN:
        return ("[kernel]", "kernel") if address >= _HALF else ("", "user")
    return _named(_PLACE.sub(b"", file), address >= _HALF)


@lru_cache(maxsize=256)
def _named(file: bytes, high: bool) -> tuple[str, str]:
    """Few files have most frames."""
    if not file or file == UNKNOWN:
        return ("[kernel]", "kernel") if high else ("", "user")
    if _BPF.fullmatch(file):
        return "bpf", "kernel"
    if _USER.fullmatch(file):
        return decode(file), "user"
    if _KERNEL.fullmatch(file):
        return ("[guest.kernel]" if file.startswith(b"[guest") else "[kernel]"), "kernel"
    if file.startswith(b"[guest"):
        return "[guest]", "user"
    if (module := _MODULE.fullmatch(file)) is not None:
        return decode(module[1].replace(b"-", b"_")), "kernel"
    if file.startswith(b"[") and file.endswith(b"]"):
        return decode(file[1:-1]), "kernel"
    if _JIT.fullmatch(file):
        return "[jit]", "user"
    return decode(file.removesuffix(_DELETED)), "user"
