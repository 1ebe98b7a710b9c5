"""Importers against damaged files: `python -m tests.fuzz_imports 1000000`. Nothing but a sentence may come of them.

The suite has some thousands of such inputs by hypothesis (test_perf_data.py and its neighbours); this is for a long run.
"""

import gzip
import importlib
import random
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa

from exhume.errors import ExhumeError
from exhume.imports.foreign import FORMATS
from exhume.imports.incoming import HEAD, Ids, Wanted, memory
from exhume.imports.perf_layout import IDENTIFIER
from tests.imports import made_perf as made
from tests.sources.sampling.made_records import record

# What a file of a few kilobytes may take beside the interpreter and its libraries; another import takes no more than the last.
MOST_MB = 400
# The byte, unless the whole file is meant.
PLACE = re.compile(r"byte \d|other byte order|older than Linux|--threads|has no event")
# A real capture is some hundred kilobytes, and names the functions of the kernel that runs here.
LARGE_EVERY = 100

SCRIPT = b"""\
# hostname : node-7
# os release : 6.1.0
bash  4242/4243 [001] 12345.678901:   10101010 cpu-clock:pppH:
\tffffffff81000010 do_idle+0x10 ([kernel.kallsyms])
\t    7f0000001234 main+0x34 (/usr/bin/my prog (deleted))

swapper     0 [000] 12345.688901:          1 cycles:  ffffffff81000010 [unknown] ([unknown])
Web Content  77 [003] 12345.698901: 1 cycles:
\t    7f0000001234 std::vector<int>::f(int)+0x1 (inlined)

"""
LOG = b"""\
<4>[12345.678901] ena 0000:20:03.0 eth0: Device reset completed successfully
[Sun Nov 15 12:04:31 2026] watchdog: BUG: soft lockup - CPU#39 stuck for 23s! [kubelet:812]
[Nov15 12:04] eth0: something
[  +0.005000] watchdog: BUG: soft lockup - CPU#39 stuck for 23s! [kubelet:812]
2026-11-15T12:04:31,123456+01:00 eth0: a line
Nov 15 12:04:31 node-7 kernel: [12346.000000] ena 0000:20:03.0 eth0: Device reset completed successfully
"""
JOURNAL = b"""\
{"__REALTIME_TIMESTAMP":"1763208271000000","__MONOTONIC_TIMESTAMP":"12345678901","_BOOT_ID":"b","_TRANSPORT":"kernel",\
"MESSAGE":"ena 0000:20:03.0 eth0: Device reset completed successfully","_SOURCE_MONOTONIC_TIMESTAMP":"12345678901"}
{"__REALTIME_TIMESTAMP":"1763208272000000","_TRANSPORT":"kernel","MESSAGE":[101,110,97,255]}
"""
DELTAS = b"".join(
    b"a 1/1 [000] 0.%06d: 1 cpu-clock:\n\t 12 f+0x1 (/bin/a)\n  a.c:1\n insn: 0f\n" % i for i in (0, 9, 4, 7, 2, 8)
)
KMSG = b"".join(
    b"4,%d,%d,-;watchdog: BUG: soft lockup - CPU#39 stuck for 23s! [kubelet:812]\n SUBSYSTEM=net\n" % (i, 10**8 + i)
    for i in range(5)
)
DOCKER = b'{"log":"[  100.123456] watchdog: BUG: soft lockup - CPU#39 stuck for 23s! [kubelet:812]\\n","stream":"stdout"}\n' * 3
FOLDED = b"bash;main;read_[k] 12\nkubelet-4242/4243;f;g_[j] 3\nswapper;do_idle_[k] 900\n"


def seeds() -> list[bytes]:
    records = (
        made.comm(10, b"parent", 1)
        + made.fork(20, 10, 50)
        + made.mmap2(20, 0x1000, 0x1000, b"/lib/x", 70)
        + b"".join(made.sample(20, 100 + i, core=i % 2, user=[0x1234 + i]) for i in range(20))
        + made.end_of_round()
    )
    features = {3: made.string("node-7"), 4: made.string("6.1.0"), 7: struct.pack("=II", 4, 4)}
    two = (made.Attr(), made.Attr(kind=2, config=7, ids=(2, 3), sample=made.USUAL | IDENTIFIER))
    packed = pa.compress(records, "zstd", asbytes=True)
    packed = record(81, packed.ljust(-(-len(packed) // 8) * 8, b"\0"))
    logs = [SCRIPT, DELTAS, LOG, KMSG, DOCKER, JOURNAL, FOLDED]
    return [
        made.file(records),
        made.file(records, two, features),
        made.file(packed, features=features),
        made.pipe(records, features=features),
        *logs,
        *(gzip.compress(log) for log in logs),
        made.pipe(records + struct.pack("=IHHI", 66, 0, 12, 16) + bytes(16) + made.build_id(b"/lib/x", bytes(20)) + records),
    ]


def captured() -> list[bytes]:
    """What this machine's perf writes by default, to a file, packed, of two events, to a pipe; nothing where it cannot."""
    if shutil.which("perf") is None:
        return []
    found = []
    with tempfile.TemporaryDirectory() as place:
        for how in (["-g"], ["-g", "-z"], ["-e", "cpu-clock,page-faults"], ["-g", "-o", "-"]):
            path = Path(place, "perf.data")
            to = [] if "-" in how else ["-o", str(path)]
            command = ["perf", "record", "-q", "-a", "-F", "499", *to, *how, "--", "sleep", "0.02"]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
            if done.returncode == 0:
                found.append(done.stdout if not to else path.read_bytes())
    return found


def damaged(data: bytes, by: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(by.choice((1, 1, 2, 4, 16))):
        at = by.randrange(len(changed) + 1) if changed else 0
        what = by.randrange(6)
        if what == 0 and changed:
            changed[at % len(changed)] = by.randrange(256)
        elif what == 1:
            del changed[at : at + by.randrange(1, 40)]
        elif what == 2:
            changed[at:at] = by.randbytes(by.randrange(1, 20))
        elif what == 3:
            changed[at:at] = changed[by.randrange(len(changed) + 1) :][:200]
        elif what == 4 and len(changed) >= at + 8:
            changed[at : at + 8] = by.choice((b"\xff" * 8, b"\0" * 8, b"\x7f" + b"\xff" * 7, b"99999999", b"-1      "))
        else:
            del changed[at:]
    return bytes(changed)


def tried(data: bytes) -> str:
    """What came of it: the format, or that it was refused, which must say where."""
    source = memory(data)
    try:
        head = source.head(HEAD)
        for name, module in FORMATS.items():
            known = importlib.import_module(module)
            if known.looks(head):
                content = known.opened(source, Wanted(symbols=False))
                ids = Ids()
                for rows in content.batches(ids):
                    assert len(rows["samples"]) < 1 << 20
                    if content.full:
                        content.forget()
                return name
        return "nothing known"
    except ExhumeError as error:
        if not PLACE.search(str(error)):
            raise ValueError("a refusal that does not say where") from error
        return "refused"
    finally:
        source.close()


def main(count: int, seed: int) -> None:
    by = random.Random(seed)
    files, large = seeds(), captured()
    seen: Counter[str] = Counter()
    slowest = 0.0
    for number in range(count):
        data = damaged(by.choice(files if number % LARGE_EVERY or not large else large), by)
        begin = time.perf_counter()
        try:
            seen[tried(data)] += 1
        except BaseException:
            print(f"input {number} of seed {seed}: {data!r}")
            raise
        slowest = max(slowest, time.perf_counter() - begin)
    height = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{count:,} inputs, slowest {slowest:.3f} s, {height:.0f} MB at the height:", dict(seen))
    assert height < MOST_MB


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
