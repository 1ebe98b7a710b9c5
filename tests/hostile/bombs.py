"""Inputs that were made to hurt: each a function that writes one below a directory and returns the commands to read it with.

`size` is about how many bytes the input may have: 10 MB in full, less for the everyday suite. `{}` in a command stands for the
directory.
"""

import bz2
import gzip
import json
import lzma
import os
import random
import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from exhume.diagnosis.findings.leak_places import PlaceOwner
from exhume.diagnosis.findings.memcg_leak import MemcgLeak
from exhume.diagnosis.findings.soft_lockup import SoftLockup
from exhume.diagnosis.report import MOST_LINKS, as_json
from exhume.recording.writer import Writer
from tests.diagnosis.findings.facts import finding
from tests.diagnosis.made import report
from tests.imports import made_perf
from tests.recording import made
from tests.sources.sampling.made_records import record

Commands = list[list[str]]
Bomb = Callable[[Path, int], Commands]
BOMBS: dict[str, Bomb] = {}

READ_FILE = [["import", "{}/in", "-o", "{}/out"], ["diagnose", "{}/in"], ["flame", "{}/in"]]
READ_LOG = [["diagnose", "{}/in"]]
READ_IMAGE = [["audit", "--image", "{}/in"]]
READ_ROOT = [["audit", "--root", "{}/root"]]
READ_RECORDING = [
    ["info", "{}/rec"],
    ["diagnose", "{}/rec"],
    ["flame", "{}/rec"],
    ["heat", "{}/rec"],
    ["export", "{}/rec", "--format", "folded", "-o", "{}/x"],
]
UNIT = b"[Unit]\nDescription=a\n[Service]\nExecStart=/bin/a\nRestart=always\n[Install]\nWantedBy=multi-user.target\n"


def bomb(make: Bomb) -> Bomb:
    BOMBS[make.__name__] = make
    return make


# Text: logs, journals, stacks.


def packed(path: Path, head: bytes, piece: bytes, tail: bytes, size: int, ratio: int = 1000) -> None:
    """`piece` again and again, gzip, to `size` times `ratio` bytes: members one behind the other, which is quick to make."""
    block = piece * max(1, (4 << 20) // len(piece))
    member = gzip.compress(block, 9)
    path.write_bytes(gzip.compress(head) + member * (size * ratio // len(block)) + gzip.compress(tail))


LINE = b"[12345.678901] ena 0000:20:03.0 eth0: Device reset completed successfully\n"


@bomb
def log_of_one_line(at: Path, size: int) -> Commands:
    packed(at / "in", b"[    1.000000] Linux version 6.1.0\n[    2.000000] ", b"a", b"\n", size // 6)
    return READ_FILE


@bomb
def log_of_one_line_plain(at: Path, size: int) -> Commands:
    (at / "in").write_bytes(b"[    1.000000] Linux version 6.1.0\n[    2.000000] " + b"a" * size)
    return READ_LOG


@bomb
def log_of_equal_lines(at: Path, size: int) -> Commands:
    packed(at / "in", b"", LINE, b"", size, 100)
    return READ_LOG


@bomb
def log_of_different_lines(at: Path, size: int) -> Commands:
    lines = size // 90
    (at / "in").write_bytes(
        b"".join(
            b"[%5d.%06d] watchdog: BUG: soft lockup - CPU#%d stuck for 23s! [x%d:%d]\n" % (i // 50, i, i % 4096, i, i)
            for i in range(lines)
        )
    )
    return READ_LOG


@bomb
def log_over_a_long_time(at: Path, size: int) -> Commands:
    lines = min(size // 80, 20_000)
    (at / "in").write_bytes(b"".join(b"[%9d.000000] eth0: NIC Link is Down\n" % (i * 50_000) for i in range(lines)))
    return READ_LOG


@bomb
def log_of_empty_lines(at: Path, size: int) -> Commands:
    (at / "in").write_bytes(LINE + b"\n" * size)
    return READ_LOG


@bomb
def log_of_traces(at: Path, size: int) -> Commands:
    trace = b"".join(b"[    2.%06d]  f%d+0x1/0x2\n" % (i, i) for i in range(size // 32))
    (at / "in").write_bytes(
        b"[    1.000000] rcu: INFO: rcu_sched self-detected stall on CPU\n[    1.000001] Call Trace:\n" + trace
    )
    return READ_LOG


@bomb
def gzip_of_empty_members(at: Path, size: int) -> Commands:
    (at / "in").write_bytes(gzip.compress(LINE * 3) + gzip.compress(b"") * (size // 20))
    return READ_LOG


@bomb
def gzip_in_gzip(at: Path, size: int) -> Commands:
    inner = zlib.compressobj(9, wbits=31)
    data = b"".join(inner.compress(bytes(1 << 20)) for _ in range(size // 1000))
    (at / "in").write_bytes(gzip.compress(data + inner.flush()))
    return READ_LOG


@bomb
def gzip_with_a_long_comment(at: Path, size: int) -> Commands:
    (at / "in").write_bytes(b"\x1f\x8b\x08\x10\0\0\0\0\0\x03" + b"c" * size + b"\0")
    return READ_LOG


FIRST = (
    b'{"__REALTIME_TIMESTAMP":"1763208271000000","__MONOTONIC_TIMESTAMP":"12345678901","_BOOT_ID":"b","_TRANSPORT":"kernel",'
)


@bomb
def journal_of_many_fields(at: Path, size: int) -> Commands:
    fields = b",".join(b'"F%07d":"x"' % i for i in range(size // 15))
    (at / "in").write_bytes(FIRST + b'"MESSAGE":"x",' + fields + b"}\n")
    return READ_LOG


@bomb
def journal_of_numbers(at: Path, size: int) -> Commands:
    (at / "in").write_bytes(FIRST + b'"MESSAGE":[' + b",".join([b"97"] * (size // 3)) + b"]}\n")
    return READ_LOG


@bomb
def journal_nested(at: Path, size: int) -> Commands:
    (at / "in").write_bytes(FIRST + b'"MESSAGE":"x"}\n' + FIRST + b'"MESSAGE":' + b"[" * size + b"}\n")
    return READ_LOG


@bomb
def journal_of_empty_objects(at: Path, size: int) -> Commands:
    line = FIRST + b'"MESSAGE":[' + b",".join([b"{}"] * 2000) + b"]}\n"
    (at / "in").write_bytes(line * (size // len(line)))
    return READ_LOG


@bomb
def journal_of_boots(at: Path, size: int) -> Commands:
    lines = [
        b'{"__REALTIME_TIMESTAMP":"%d","__MONOTONIC_TIMESTAMP":"%d","_BOOT_ID":"%032x","_TRANSPORT":"kernel","MESSAGE":"x"}\n'
        % (1763208271000000 + i, i, i)
        for i in range(size // 140)
    ]
    (at / "in").write_bytes(b"".join(lines))
    return READ_LOG


@bomb
def folded_deep(at: Path, size: int) -> Commands:
    (at / "in").write_bytes(b"a;b 1\n" + b"a;" * (size // 2) + b"b 1\n")
    return READ_FILE


@bomb
def folded_many_deep(at: Path, size: int) -> Commands:
    line = b"f;" * 120
    (at / "in").write_bytes(b"".join(line + b"g%d 1\n" % i for i in range(size // 250)))
    return READ_FILE


@bomb
def folded_different(at: Path, size: int) -> Commands:
    (at / "in").write_bytes(b"".join(b"p%d;f%d;g%d 1\n" % (i, i, i) for i in range(size // 26)))
    return READ_FILE


@bomb
def folded_counts(at: Path, size: int) -> Commands:
    (at / "in").write_bytes(b"a;b 999999999999999\n" * (size // 20))
    return READ_FILE


@bomb
def folded_packed(at: Path, size: int) -> Commands:
    packed(at / "in", b"", b"a;b;c;d 1\n", b"", size, 400)
    return READ_FILE


@bomb
def script_different(at: Path, size: int) -> Commands:
    one = b"c%d %d/%d [%03d] %d.%06d: 1 cpu-clock:\n\t %x f%d+0x1 (/bin/p%d)\n\n"
    rows = (one % (i, i, i, i % 999, i // 100, i % 10**6, i + 4096, i, i) for i in range(size // 80))
    (at / "in").write_bytes(b"".join(rows))
    return READ_FILE


@bomb
def script_deep(at: Path, size: int) -> Commands:
    frames = b"".join(b"\t %x f%d+0x1 (/bin/p)\n" % (i + 4096, i) for i in range(size // 26))
    (at / "in").write_bytes(b"bash 1/1 [001] 1.000000: 1 cpu-clock:\n" + frames + b"\n")
    return READ_FILE


@bomb
def script_over_a_long_time(at: Path, size: int) -> Commands:
    one = b"bash 1/1 [000] %d.000000: 1 cpu-clock:\n\t 1000 f+0x1 (/bin/p)\n\n"
    (at / "in").write_bytes(b"".join(one % (i * 1000) for i in range(min(size // 60, 30_000))))
    return [*READ_FILE, ["heat", "{}/in"]]


@bomb
def script_huge_cores(at: Path, size: int) -> Commands:
    one = b"bash 1/1 [%d] %d.000000: 1 cpu-clock:\n\t 1000 f+0x1 (/bin/p)\n\n"
    (at / "in").write_bytes(b"".join(one % (i * 77_777, i % 100) for i in range(min(size // 60, 30_000))))
    return [*READ_FILE, ["heat", "{}/in"]]


@bomb
def script_packed(at: Path, size: int) -> Commands:
    packed(at / "in", b"", b"bash 1/1 [001] 1.000000: 1 cpu-clock:\n\t 1000 f+0x1 (/bin/p)\n\n", b"", size, 300)
    return READ_FILE


@bomb
def script_of_one_line(at: Path, size: int) -> Commands:
    packed(at / "in", b"bash 1/1 [001] 1.000000: 1 cpu-clock:\n\t 1000 ", b"f", b"\n\n", size // 6)
    return READ_FILE


def perf(path: Path, records: bytes) -> None:
    path.write_bytes(made_perf.file(records))


@bomb
def perf_of_maps(at: Path, size: int) -> Commands:
    maps = b"".join(made_perf.mmap2(20, i << 12, 4096, b"/l%d" % i, 70 + i) for i in range(size // 120))
    perf(at / "in", maps + made_perf.sample(20, 10**9, user=[0x1234]))
    return READ_FILE


@bomb
def perf_of_processes(at: Path, size: int) -> Commands:
    rows = b"".join(made_perf.comm(i, b"c%d" % i, i) + made_perf.sample(i, 10**6 + i, user=[i]) for i in range(1, size // 140))
    perf(at / "in", rows)
    return [*READ_FILE, ["heat", "{}/in"]]


@bomb
def perf_of_deep_stacks(at: Path, size: int) -> Commands:
    rows = b"".join(made_perf.sample(1, 10**6 + i, user=list(range(i, i + 5000))) for i in range(max(1, size // 40_000)))
    perf(at / "in", rows)
    return READ_FILE


@bomb
def perf_over_a_long_time(at: Path, size: int) -> Commands:
    rows = b"".join(made_perf.sample(1, i * 10**12, core=i % 4000, user=[i]) for i in range(1, min(size // 70, 40_000)))
    perf(at / "in", rows)
    return [*READ_FILE, ["heat", "{}/in"]]


@bomb
def perf_packed(at: Path, size: int) -> Commands:
    """Records of zstd: one sample again and again."""
    samples = b"".join(made_perf.sample(20, 100 + i, core=i % 2, user=[0x1234]) for i in range(1000))
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        for _ in range(size * 1000 // len(samples)):
            stream.write(samples)
    data = sink.getvalue().to_pybytes()[:size]
    data = data.ljust(-(-len(data) // 8) * 8, b"\0")
    parts = b"".join(record(81, data[i : i + 60_000]) for i in range(0, len(data), 60_000))
    perf(at / "in", parts)
    return READ_FILE


# Archives and disks.


def header(name: bytes, size: int = 0, flag: bytes = b"0", link: bytes = b"") -> bytes:
    block = bytearray(512)
    block[: len(name)] = name
    block[100:148] = b"0000644\0" + b"0000000\0" * 2 + b"%011o\0" % size + b"0" * 11 + b"\0"
    block[156:157] = flag
    block[157 : 157 + len(link)] = link
    block[257:265] = b"ustar\x0000"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def filled(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def file(name: bytes, data: bytes) -> bytes:
    return header(name, len(data)) + filled(data)


END = file(b"etc/os-release", b"ID=x\n") + file(b"etc/systemd/system/a.service", UNIT) + bytes(1024)


def archive(path: Path, parts: Iterator[bytes], most: int = 0) -> None:
    """`most`: stop at about that many bytes, packed."""
    with path.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=6) as out:
        for part in parts:
            out.write(part)
            if most and raw.tell() > most:
                break
        out.write(END)


@bomb
def tar_of_global_headers(at: Path, size: int) -> Commands:
    def parts() -> Iterator[bytes]:
        number = 0
        while True:
            records = bytearray()
            while len(records) < 1_000_000:
                text = b" %x=\n" % number
                length = len(text) + 1 + (len(text) > 8)
                records += b"%d" % length + text
                number += 1
            yield header(b"x", len(records), b"g") + filled(bytes(records))

    archive(at / "in", parts(), size)
    return READ_IMAGE


@bomb
def tar_of_headers_of_one_member(at: Path, size: int) -> Commands:
    name = b"n" * 1_000_000
    archive(at / "in", (header(b"x", len(name), b"L") + filled(name) for _ in range(size // 5)), size)
    return READ_IMAGE


@bomb
def tar_of_hard_links(at: Path, size: int) -> Commands:
    def parts() -> Iterator[bytes]:
        for i in range(size // 16):
            yield header(b"d/" + b"a" * 60 + b"%08d" % i)
        for i in range(size // 200):
            yield header(b"e/l%08d" % i, 0, b"1", b"d/zz%08d" % i)

    archive(at / "in", parts(), size)
    return READ_IMAGE


@bomb
def tar_of_hard_links_that_matter(at: Path, size: int) -> Commands:
    def parts() -> Iterator[bytes]:
        for i in range(size // 24):
            yield header(b"d/" + b"a" * 60 + b"%08d" % i)
        for i in range(size // 200):
            yield header(b"etc/systemd/system/%08d.service" % i, 0, b"1", b"d/zz%08d" % i)

    archive(at / "in", parts(), size)
    return READ_IMAGE


@bomb
def tar_of_deep_names(at: Path, size: int) -> Commands:
    deep = b"/".join([b"a"] * 1900)

    def parts() -> Iterator[bytes]:
        for i in range(size // 60):
            name = b"%d/" % i + deep
            yield header(b"x", len(name), b"L") + filled(name) + header(b"x")

    archive(at / "in", parts(), size)
    return READ_IMAGE


@bomb
def tar_of_directories(at: Path, size: int) -> Commands:
    archive(at / "in", (header(b"d%08d/x" % i, 0, b"5") for i in range(size // 10)), size)
    return READ_IMAGE


@bomb
def tar_of_units(at: Path, size: int) -> Commands:
    archive(at / "in", (file(b"etc/systemd/system/u%07d.service" % i, UNIT) for i in range(size // 30)), size)
    return READ_IMAGE


@bomb
def tar_of_units_that_want_each_other(at: Path, size: int) -> Commands:
    count = min(2000, size // 400)
    wants = b"[Unit]\nWants=" + b" ".join(b"u%04d.service" % i for i in range(count)) + b"\n" + UNIT
    archive(at / "in", (file(b"etc/systemd/system/u%04d.service" % i, wants) for i in range(count)), size)
    return READ_IMAGE


@bomb
def tar_of_links_to_links(at: Path, size: int) -> Commands:
    rows = (header(b"etc/systemd/system/u%07d.service" % i, 0, b"2", b"u%07d.service" % (i + 1)) for i in range(size // 24))
    archive(at / "in", rows, size)
    return READ_IMAGE


@bomb
def tar_of_long_units(at: Path, size: int) -> Commands:
    unit = b"[Service]\n" + b"ExecStart=/bin/a \\\n" * 50_000
    archive(at / "in", (file(b"etc/systemd/system/u%07d.service" % i, unit) for i in range(200)), size)
    return READ_IMAGE


@bomb
def tar_of_units_of_sections(at: Path, size: int) -> Commands:
    unit = b"[Unit]\nWants=%n.service\n" * 40_000
    archive(at / "in", (file(b"etc/systemd/system/u%07d.service" % i, unit) for i in range(200)), size)
    return READ_IMAGE


@bomb
def tar_of_drop_ins(at: Path, size: int) -> Commands:
    rows = (
        file(b"etc/systemd/system/a.service.d/%07d.conf" % i, b"[Service]\nEnvironment=A=%d\n" % i) for i in range(size // 30)
    )
    archive(at / "in", rows, size)
    return READ_IMAGE


@bomb
def tar_of_crontabs(at: Path, size: int) -> Commands:
    table = b"*/1 1-59/2,1,2,3,4,5 * * * root /bin/x\n" * 25_000
    archive(at / "in", (file(b"etc/cron.d/c%05d" % i, table) for i in range(300)), size)
    return READ_IMAGE


@bomb
def tar_of_manifests(at: Path, size: int) -> Commands:
    laughs = b"".join(b"a%d: &a%d [%s]\n" % (i, i, b",".join([b"*a%d" % (i - 1)] * 10) if i else b"lol") for i in range(40))
    pod = b"apiVersion: v1\nkind: Pod\nspec:\n  containers: *a39\n"
    deep = b"[" * 120_000
    flow = b"{a: " * 25_000
    rows = (
        file(b"etc/kubernetes/manifests/%05d.yaml" % i, (laughs + pod, deep, flow, b"- " * 60_000)[i % 4]) for i in range(2000)
    )
    archive(at / "in", rows, size)
    return READ_IMAGE


@bomb
def tar_of_package_lists(at: Path, size: int) -> Commands:
    names = b"".join(b"/usr/share/%08d\n" % i for i in range(1_000_000))
    archive(at / "in", (file(b"var/lib/dpkg/info/p%04d.list" % i, names) for i in range(40)), size)
    return READ_IMAGE


@bomb
def tar_of_zeros(at: Path, size: int) -> Commands:
    """One file of zeros, as much as `size` bytes of gzip hold."""
    zeros = gzip.compress(bytes(4 << 20), 9)
    count = size // len(zeros)
    (at / "in").write_bytes(gzip.compress(header(b"z", count << 22)) + zeros * count + gzip.compress(END))
    return READ_IMAGE


@bomb
def tar_bz2(at: Path, size: int) -> Commands:
    packer = bz2.BZ2Compressor(9)
    zeros = bytes(1 << 20)
    count = max(4, size // 4096)
    data = packer.compress(header(b"z", count << 20)) + b"".join(packer.compress(zeros) for _ in range(count))
    (at / "in").write_bytes(data + packer.compress(END) + packer.flush())
    return READ_IMAGE


@bomb
def tar_xz(at: Path, size: int) -> Commands:
    packer = lzma.LZMACompressor(preset=1)
    zeros = bytes(1 << 20)
    count = max(4, size // 4096)
    data = packer.compress(header(b"z", count << 20)) + b"".join(packer.compress(zeros) for _ in range(count))
    (at / "in").write_bytes(data + packer.compress(END) + packer.flush())
    return READ_IMAGE


@bomb
def tar_xz_of_a_large_dictionary(at: Path, size: int) -> Commands:
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 30, "preset": 0}]
    (at / "in").write_bytes(lzma.compress(header(b"z", 1 << 20) + bytes(1 << 20) + END, filters=filters)[: size or None])
    return READ_IMAGE


@bomb
def tar_of_endless_sparse(at: Path, size: int) -> Commands:
    first = bytearray(header(b"s", 0, b"S"))
    first[482] = 1
    first[483:495] = b"%011o\0" % (1 << 30)
    first[148:156] = b" " * 8
    first[148:156] = b"%06o\0 " % sum(first)
    more = bytearray(512)
    more[504] = 1
    archive(at / "in", (bytes(first) if not i else bytes(more) * 2000 for i in range(size)), size // 4)
    return READ_IMAGE


def docker(path: Path, layers: int, layer: bytes) -> None:
    names = [f"l{i:05d}.tar" for i in range(layers)]
    config = json.dumps({"rootfs": {"diff_ids": ["sha256:" + "0" * 64] * layers}}).encode()
    manifest = json.dumps([{"Config": "c.json", "RepoTags": ["x"], "Layers": names}]).encode()
    with gzip.GzipFile(path, "wb", compresslevel=9) as out:
        for name in names:
            out.write(file(name.encode(), layer))
        out.write(file(b"c.json", config) + file(b"manifest.json", manifest) + bytes(1024))


@bomb
def docker_layers_of_zeros(at: Path, size: int) -> Commands:
    total = 1 << 29 if size > 1 << 20 else 1 << 26
    docker(at / "in", 8, gzip.compress(header(b"zeros", total) + bytes(total) + bytes(1024), 9))
    return [*READ_IMAGE, ["gate", "--image", "{}/in"]]


@bomb
def docker_many_layers(at: Path, size: int) -> Commands:
    layer = b"".join(header(b"d%d/x%08d" % (i % 9, i)) for i in range(3000)) + END
    docker(at / "in", min(10_000, size // 1000), gzip.compress(layer))
    return READ_IMAGE


@bomb
def docker_of_whiteouts(at: Path, size: int) -> Commands:
    names = b"".join(header(b"d/" + b"a" * 40 + b"%08d" % i) for i in range(size // 40))
    gone = b"".join(header(b"d/.wh." + b"a" * 40 + b"%08d" % i) for i in range(size // 40))
    layers = [gzip.compress(names + bytes(1024)), gzip.compress(gone + END)]
    config = json.dumps({"rootfs": {"diff_ids": ["sha256:" + "0" * 64] * 2}}).encode()
    manifest = json.dumps([{"Config": "c.json", "RepoTags": ["x"], "Layers": ["0.tar", "1.tar"]}]).encode()
    parts = [file(b"%d.tar" % i, layer) for i, layer in enumerate(layers)]
    (at / "in").write_bytes(b"".join(parts) + file(b"c.json", config) + file(b"manifest.json", manifest) + bytes(1024))
    return READ_IMAGE


@bomb
def docker_nested_manifest(at: Path, size: int) -> Commands:
    deep = b"[" * 900_000
    (at / "in").write_bytes(file(b"manifest.json", deep) + file(b"index.json", b'{"manifests":' + deep) + bytes(1024))
    return READ_IMAGE


@bomb
def docker_large_manifests(at: Path, size: int) -> Commands:
    large = b"[" + b",".join([b'{"":0}'] * 140_000) + b"]"
    with gzip.GzipFile(at / "in", "wb") as out:
        for i in range(15):
            out.write(file(b"%d.json" % i, large))
        out.write(file(b"manifest.json", large) + file(b"index.json", large) + bytes(1024))
    return READ_IMAGE


def rpm_root(at: Path, script: str, *rows: tuple[str, Any]) -> None:
    place = at / "root/usr/lib/sysimage/rpm"
    place.mkdir(parents=True)
    (at / "root/etc/systemd/system").mkdir(parents=True)
    (at / "root/etc/systemd/system/a.service").write_bytes(UNIT)
    (at / "root/etc/os-release").write_text("ID=x\n")
    database = sqlite3.connect(place / "rpmdb.sqlite")
    database.executescript(script)
    for statement, values in rows:
        database.executemany(statement, values)
    database.commit()
    database.close()


@bomb
def sqlite_view_of_zeros(at: Path, size: int) -> Commands:
    rpm_root(
        at,
        "create view Basenames as select 'a' as key, 1 as hnum union all select 'a.service', 1;"
        "create view Packages as select 1 as hnum, zeroblob(900000000) as blob;",
    )
    return READ_ROOT


@bomb
def sqlite_endless_view(at: Path, size: int) -> Commands:
    rpm_root(
        at,
        "create view Basenames as with recursive c(x) as (select 1 union all select x+1 from c)"
        " select 'a' as key, x as hnum from c;"
        "create view Packages as select 1 as hnum, hex(zeroblob(10000000)) as blob;",
    )
    return READ_ROOT


@bomb
def sqlite_generated_column(at: Path, size: int) -> Commands:
    rpm_root(
        at,
        "create table Basenames(key text, hnum integer as (length(hex(zeroblob(30000000)))));"
        "create table Packages(hnum integer, blob blob as (zeroblob(900000000)));"
        "insert into Basenames(key) values ('a'), ('a.service');",
        ("insert into Packages(hnum) values (?)", [(i,) for i in range(100)]),
    )
    return READ_ROOT


@bomb
def sqlite_of_names(at: Path, size: int) -> Commands:
    head = struct.pack(">II", 4, size // 2)
    tags = [(1000, 6, 0, 1), (1117, 8, 2, size // 8), (1118, 8, 2, size // 8), (1116, 4, 2, size // 8 - 2)]
    entries = b"".join(struct.pack(">iIiI", *tag) for tag in tags)
    blob = head + entries + b"p\0" + bytes(size // 2 - 2)
    rpm_root(
        at,
        "create table Basenames(key text, hnum integer); create table Packages(hnum integer primary key, blob blob);",
        ("insert into Basenames values (?, ?)", [("a", 1)] * (size // 40)),
        ("insert into Packages values (?, ?)", [(1, blob)]),
    )
    return READ_ROOT


@bomb
def disk_sparse(at: Path, size: int) -> Commands:
    with (at / "in").open("wb") as out:
        out.write(bytes(1024 + 0x38) + b"\x53\xef")
        out.truncate(1 << 40)
    return READ_IMAGE


def ext4(superblock_inodes: int = 64) -> bytearray:
    """A small ext2: block size 1024, the inode table at block 5."""
    image = bytearray(64 << 10)
    struct.pack_into("<11I", image, 1024, superblock_inodes, 64, 0, 0, 0, 1, 0, 0, 8192, 8192, superblock_inodes)
    struct.pack_into("<H", image, 1024 + 0x38, 0xEF53)
    struct.pack_into("<I", image, 1024 + 0x4C, 1)
    struct.pack_into("<H", image, 1024 + 0x58, 128)
    struct.pack_into("<I", image, 1024 + 0x60, 0x42)
    struct.pack_into("<I", image, 2048 + 8, 5)
    return image


@bomb
def ext4_directory_of_holes(at: Path, size: int) -> Commands:
    """The root directory says that it has 4 GiB, one extent that all reads the same block."""
    image = ext4()
    inode = 5 * 1024 + 128
    struct.pack_into("<HHI", image, inode, 0o40755, 0, 0xFFFFFFFF)
    struct.pack_into("<I", image, inode + 0x20, 0x80000)
    struct.pack_into("<4HI", image, inode + 0x28, 0xF30A, 1, 4, 0, 0)
    struct.pack_into("<IHHI", image, inode + 0x34, 0, 32768, 0, 20)
    entry = struct.pack("<IHBB", 2, 12, 3, 2) + b"etc\0"
    image[20 * 1024 : 21 * 1024] = (entry * 86)[:1020] + bytes(4)
    (at / "in").write_bytes(bytes(image) + bytes(size))
    return READ_IMAGE


@bomb
def qcow2_of_one_cluster(at: Path, size: int) -> Commands:
    """All of the disk is one packed cluster of 2 MiB, again and again."""
    head = bytearray(112)
    struct.pack_into(">4sIQIIQIIQQIIQ", head, 0, b"QFI\xfb", 3, 0, 0, 21, 1 << 40, 0, 4, 1 << 21, 0, 0, 0, 0)
    struct.pack_into(">II", head, 96, 4, 104)
    cluster = bytes(1024 + 0x38) + b"\x53\xef" + bytes((2 << 20) - 1024 - 0x3A)
    packer = zlib.compressobj(9, wbits=-12)
    data = packer.compress(cluster) + packer.flush()
    with (at / "in").open("wb") as out:
        out.write(head)
        out.seek(1 << 21)
        out.write(struct.pack(">4Q", *([2 << 21 | 1 << 63] * 4)))
        out.seek(2 << 21)
        out.write(struct.pack(">Q", 1 << 62 | (len(data) // 512 + 1) << 49 | 3 << 21) * (1 << 18))
        out.write(data.ljust(4096, b"\0"))
    return READ_IMAGE


# Recordings.


def recording(at: Path, *tables: str) -> Path:
    """A small sealed recording. Its segment's directory."""
    writer = Writer(str(at / "rec"), made.NODE, made.ABOUT, budget_bytes=1 << 40)
    for second in range(3):
        writer.append(made.second(second, names=second == 0))
    writer.close()
    (segment,) = (path for path in (at / "rec").glob("*/*-*") if path.is_dir())
    return segment


def rows_of_one_value(path: Path, columns: dict[str, Any], rows: int, groups: int, **options: Any) -> None:
    """A text is in the file once for each row group, whatever its length."""
    zeros = np.zeros(rows, np.int32)
    arrays = {
        name: pa.DictionaryArray.from_arrays(zeros, [value]) if isinstance(value, str) else pa.array([value]).take(zeros)
        for name, value in columns.items()
    }
    table = pa.table(arrays)
    with pq.ParquetWriter(path, table.schema, compression="zstd", store_schema=False, **options) as writer:
        for _ in range(groups):
            writer.write_table(table, row_group_size=rows)


@bomb
def recording_of_a_billion_samples(at: Path, size: int) -> Commands:
    segment = recording(at)
    columns = {"time": made.BEGIN, "core": 0, "thread": 0, "stack": 1}
    rows_of_one_value(segment / "samples.parquet", columns, 1_000_000, size // 18_000)
    return READ_RECORDING


@bomb
def recording_of_large_texts(at: Path, size: int) -> Commands:
    """One text, once in the dictionary of the file, of all rows."""
    segment = recording(at)
    text = os.urandom(size // 8).hex()
    columns = {"time": made.BEGIN, "kind": "line", "device": "eth0", "level": "info", "message": text, "labels": "{}"}
    rows_of_one_value(
        segment / "events.parquet",
        columns,
        3000,
        3,
        use_dictionary=True,
        data_page_size=1 << 20,
        dictionary_pagesize_limit=1 << 30,
    )
    return READ_RECORDING


@bomb
def recording_of_large_frames(at: Path, size: int) -> Commands:
    segment = recording(at)
    text = os.urandom(min(size // 8, 400_000)).hex()
    columns = {"id": 1, "name": text, "module": "[kernel]", "space": "kernel", "offset": -1}
    rows_of_one_value(
        segment.parent / "frames.parquet", columns, 2000, 10, use_dictionary=True, dictionary_pagesize_limit=1 << 30
    )
    return READ_RECORDING


@bomb
def recording_of_deep_stacks(at: Path, size: int) -> Commands:
    segment = recording(at)
    columns = {"id": 1, "class": "user", "frames": [1] * 1000}
    rows_of_one_value(segment.parent / "stacks.parquet", columns, 5_000, max(1, size // 500_000))
    return READ_RECORDING


@bomb
def recording_over_centuries(at: Path, size: int) -> Commands:
    segment = recording(at)
    times = np.linspace(made.BEGIN, 2**62, 5000).astype(np.int64)
    table = {"time": times, "core": np.arange(5000) * 1_000_003, "thread": np.zeros(5000, int), "stack": np.ones(5000, int)}
    pq.write_table(pa.table(table), segment / "samples.parquet")
    summary = {name: np.ones(5000, int) for name in ("idle", "user", "system", "softirq", "irq")}
    offsets = pa.array([[1] * 50] * 5000)
    pq.write_table(pa.table({"time": times, "core": table["core"], **summary, "offsets": offsets}), segment / "summary.parquet")
    segment.rename(segment.parent / f"{made.BEGIN // 10**6:013d}-{2**62 // 10**6:013d}")
    return READ_RECORDING


@bomb
def recording_named_for_ever(at: Path, size: int) -> Commands:
    segment = recording(at)
    segment.rename(segment.parent / f"{made.BEGIN // 10**6:013d}-9999999999999999")
    return READ_RECORDING


@bomb
def recording_of_counters(at: Path, size: int) -> Commands:
    """As many series as rows."""
    segment = recording(at)
    rows = size // 40
    table = {
        "time": np.full(rows, made.BEGIN),
        "name": [f"n{i}" for i in range(rows)],
        "labels": [f'{{"a":"{i}"}}' for i in range(rows)],
        "value": np.arange(rows),
    }
    pq.write_table(pa.table(table), segment / "counters.parquet", compression="zstd")
    return READ_RECORDING


@bomb
def recording_of_events(at: Path, size: int) -> Commands:
    segment = recording(at)
    rows = size // 20
    ones = {"kind": "nic-reset-done", "device": "eth0", "level": "info", "message": "reset", "labels": "{}"}
    times = made.BEGIN + np.arange(rows) * 1000
    table = pa.table({"time": times, **{name: pa.array([value]).take(np.zeros(rows, int)) for name, value in ones.items()}})
    pq.write_table(table, segment / "events.parquet", compression="zstd")
    return READ_RECORDING


@bomb
def recording_of_segments(at: Path, size: int) -> Commands:
    segment = recording(at)
    for i in range(1, min(size // 500, 20_000)):
        begin = made.BEGIN // 10**6 + 60_000 * i
        (segment.parent / f"{begin:013d}-{begin + 60_000:013d}").mkdir()
    return READ_RECORDING


@bomb
def recording_of_chapters(at: Path, size: int) -> Commands:
    segment = recording(at)
    text = (segment.parent / "chapter.json").read_bytes()
    for i in range(min(size // 1000, 9_000)):
        chapter = at / "rec" / f"20261116T012600Z-{i}"
        chapter.mkdir()
        (chapter / "chapter.json").write_bytes(text)
        (chapter / "0000005000000-0000005060000").mkdir()
    return READ_RECORDING


@bomb
def recording_open_of_giant_lengths(at: Path, size: int) -> Commands:
    """An Arrow stream whose buffers are packed: each says that it unpacks to far more than there is."""
    segment = recording(at)
    place = segment.parent / "open-0000005100000"
    place.mkdir()
    rows = size // 2 * 10
    sink = pa.BufferOutputStream()
    columns = {
        name: np.full(rows, value) for name, value in {"time": made.BEGIN + 10**11, "core": 0, "thread": 0, "stack": 1}.items()
    }
    batch = pa.record_batch(columns)
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        for _ in range(10):
            writer.write_batch(batch)
    (place / "samples.arrows").write_bytes(sink.getvalue().to_pybytes()[:size])
    return READ_RECORDING


@bomb
def recording_nested_chapter(at: Path, size: int) -> Commands:
    segment = recording(at)
    (segment.parent / "chapter.json").write_bytes(b"[" * size)
    return READ_RECORDING


@bomb
def recording_wide_chapter(at: Path, size: int) -> Commands:
    segment = recording(at)
    (segment.parent / "chapter.json").write_bytes(b"[" + b"{}," * (size // 3) + b"{}]")
    return READ_RECORDING


def _special(at: Path, name: str, special: str) -> Commands:
    segment = recording(at)
    path = {
        "mark": at / "rec/recording.json",
        "chapter": segment.parent / "chapter.json",
        "table": segment / "samples.parquet",
        "dictionary": segment.parent / "stacks.parquet",
        "pinned": segment / "pinned",
    }[name]
    path.unlink(missing_ok=True)
    if special == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    return READ_RECORDING


for _name in ("mark", "chapter", "table", "dictionary", "pinned"):
    for _kind in ("fifo", "zero"):
        BOMBS[f"recording_{_name}_is_{_kind}"] = lambda at, size, name=_name, kind=_kind: _special(at, name, kind)  # type: ignore[misc]


# Fleets, plans and settings.

READ_FLEET = [["fleet", "status", "{}/fleet"], ["fleet", "cohorts", "{}/fleet"]]


@bomb
def fleet_of_rows(at: Path, size: int) -> Commands:
    (at / "fleet").mkdir()
    columns = {"node": "n", "time": 1, "zombies": 1, "throttled_ms": 1, "reclaimed": 1, "resets": 0, "kernel": "6.1"}
    rows_of_one_value(at / "fleet/nodes.parquet", columns, 1_000_000, max(1, size // 50_000))
    rows_of_one_value(at / "fleet/minutes.parquet", columns, 1_000_000, max(1, size // 50_000))
    return [*READ_FLEET, ["fleet", "status", "{}/fleet/nodes.parquet"]]


@bomb
def fleet_of_columns(at: Path, size: int) -> Commands:
    (at / "fleet").mkdir()
    columns = min(size // 20, 50_000)
    text = "node," + ",".join(f"c{i}" for i in range(columns)) + "\n"
    text += "".join(f"n{i}," + ",".join(["1"] * columns) + "\n" for i in range(max(2, size // 2 // columns // 4)))
    (at / "fleet/nodes.csv").write_text(text)
    return [*READ_FLEET, ["fleet", "cohorts", "{}/fleet/nodes.csv"]]


@bomb
def fleet_of_nodes(at: Path, size: int) -> Commands:
    (at / "nodes.csv").write_text(
        "node,sick,a,b,c\n" + "".join(f"n{i},{i % 2},{i},{i % 7},{i % 90}\n" for i in range(size // 22))
    )
    return [["fleet", "status", "{}/nodes.csv"], ["fleet", "cohorts", "{}/nodes.csv"]]


@bomb
def fleet_nested(at: Path, size: int) -> Commands:
    (at / "fleet").mkdir()
    (at / "fleet/nodes.json").write_bytes(b'{"a":' * (size // 10))
    (at / "nodes.json").write_bytes(b"[" + b"{}," * (size // 6) + b"{}]")
    return [*READ_FLEET, ["fleet", "status", "{}/nodes.json"], ["fleet", "cohorts", "{}/fleet/nodes.json"]]


@bomb
def fleet_of_large_texts(at: Path, size: int) -> Commands:
    text = os.urandom(size // 8).hex()
    rows_of_one_value(
        at / "nodes.parquet", {"node": "n", "a": text}, 5000, 3, use_dictionary=True, dictionary_pagesize_limit=1 << 30
    )
    return [["fleet", "status", "{}/nodes.parquet"], ["fleet", "cohorts", "{}/nodes.parquet"]]


READ_REPORT = [["fix", "--from", "{}/report.json", "--host", "{}"]]


@bomb
def report_nested(at: Path, size: int) -> Commands:
    (at / "report.json").write_bytes(b"[" * size)
    return READ_REPORT


@bomb
def report_of_objects(at: Path, size: int) -> Commands:
    rows = b",".join([b'{"":0}'] * (size // 7))
    (at / "report.json").write_bytes(b'{"schema":"exhume.report/2","findings":[' + rows + b'],"verdict":{"culprits":[]}}')
    return READ_REPORT


@bomb
def report_of_leaks(at: Path, size: int) -> Commands:
    """As many findings as there may be, as many of them in the chain; each has remedies of its own."""
    leaks = [
        finding(MemcgLeak, subject=f"/a{i}", owner=PlaceOwner(unit=f"a{i}.service")) for i in range(min(10_000, size // 2000))
    ]
    caused = as_json(report(*leaks, cause="memcg-leak", chain=leaks[:MOST_LINKS]))
    (at / "caused.json").write_text(json.dumps(caused, separators=(",", ":")))
    document = {**caused, "verdict": {"cause": None}}
    (at / "report.json").write_text(json.dumps(document, separators=(",", ":")))
    return [*READ_REPORT, ["fix", "--from", "{}/caused.json", "--host", "{}"]]


@bomb
def report_of_stacks(at: Path, size: int) -> Commands:
    """Lists in the facts, as long as they may be."""
    (one,) = as_json(report(finding(SoftLockup, stack=("",) * 10_000)))["findings"]
    row = json.dumps(one, separators=(",", ":")).encode()
    rows = b",".join([row] * max(1, size // len(row)))
    (at / "report.json").write_bytes(b'{"schema":"exhume.report/2","findings":[' + rows + b'],"verdict":{}}')
    return READ_REPORT


@bomb
def report_is_zero(at: Path, size: int) -> Commands:
    (at / "report.json").symlink_to("/dev/zero")
    return READ_REPORT


@bomb
def settings_large(at: Path, size: int) -> Commands:
    (at / "s.toml").write_bytes(b"[thresholds]\n" + b"".join(b"a%d = 1\n" % i for i in range(size // 28)))
    (at / "n.toml").write_bytes(b"x = " + b"[" * (size // 20))
    (at / "d.toml").write_bytes(b"a." * (size // 30) + b"b = 1\n")
    (at / "p.toml").write_bytes(b"".join(b'[agents."a%d*"]\nowner = "x"\n' % i for i in range(size // 80)))
    (at / "rec").mkdir()
    image = [["audit", "--image", "{}/in", "--policy", f"{{}}/{name}.toml"] for name in "ndp"]
    archive(at / "in", (file(b"etc/systemd/system/u%07d.service" % i, UNIT) for i in range(min(2000, size // 100))))
    return [*image, *(["check", "--for", "200ms", "--config", f"{{}}/{name}.toml"] for name in "snd")]


@bomb
def random_bytes(at: Path, size: int) -> Commands:
    (at / "in").write_bytes(random.Random(1).randbytes(size))
    return [*READ_FILE, *READ_IMAGE]
