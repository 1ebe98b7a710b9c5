"""perf.data: what was mapped where when a sample was taken, and the names that follow from it."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from exhume.host.root import Root
from exhume.imports import perf_kernel
from exhume.imports.perf_layout import CALLCHAIN, IP, TID, TIME
from exhume.sources.sampling import chains
from tests.imports import made_perf as made
from tests.imports.perf_script import said
from tests.imports.reading import looked, seen
from tests.imports.test_perf_data import needs_perf
from tests.sources.sampling.made_records import record
from tests.sources.sampling.symbol_processes import compiled

LIBRARY = """
#include <time.h>
volatile long sum;
__attribute__((noinline)) void inner_%s(double limit) {
  while (clock() < limit * CLOCKS_PER_SEC) for (int i = 0; i < 10000; i++) sum += i;
}
void work(double limit) { inner_%s(limit); sum++; }
"""
ONE_AFTER_THE_OTHER = """
#include <dlfcn.h>
int main(int count, char **names) {
  for (int i = 1; i < count; i++) {
    void *library = dlopen(names[i], RTLD_NOW);
    ((void (*)(double))dlsym(library, "work"))(0.25 * i);
    dlclose(library);
  }
  return 0;
}
"""
# As who puts his code onto huge pages does it: memory over a part of what was mapped from the file.
OVER_ITS_OWN_TEXT = """
#define _GNU_SOURCE
#include <sys/mman.h>
#include <string.h>
#include <time.h>
volatile long sum;
#define APART __attribute__((noinline, aligned(4096)))
APART void before(double limit) { while (clock() < limit * CLOCKS_PER_SEC) for (int i = 0; i < 10000; i++) sum += i; }
APART void middle(void) { sum++; }
APART void after(double limit) { while (clock() < limit * CLOCKS_PER_SEC) for (int i = 0; i < 10000; i++) sum += i; }
APART int main(void) {
  char kept[4096], *place = (char *)middle;
  memcpy(kept, place, 4096);
  mmap(place, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  memcpy(place, kept, 4096);
  before(0.2); middle(); after(0.4);
  return 0;
}
"""


def recorded(path: Path, *command: str, options: tuple[str, ...] = ()) -> str:
    subprocess.run(
        ["perf", "record", "-q", "-e", "cpu-clock", "-F", "499", "-g", *options, "-o", str(path), "--", *command],
        check=True,
        capture_output=True,
    )
    return str(path)


def libraries(where: Path) -> list[str]:
    made_of = []
    for name in "AB":
        (where / name).mkdir()
        found = compiled(where / name, LIBRARY % (name, name), "gcc", "-O1", "-fno-omit-frame-pointer", "-shared", "-fPIC")
        made_of.append(str(found))
    return made_of


@pytest.mark.ci
@needs_perf
@pytest.mark.parametrize("many", [1, 1 << 30])
def test_a_library_in_the_place_of_another_does_not_give_it_its_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    program = compiled(tmp_path, ONE_AFTER_THE_OTHER, "gcc", "-fno-omit-frame-pointer")
    path = recorded(tmp_path / "swap.data", str(program), *libraries(tmp_path))
    monkeypatch.setattr(chains, "MANY", many)
    found, _ = seen(path, symbols=True)
    theirs = [frame[0] for one in sorted(said(path, cpu=False), key=lambda one: one.time) for frame in one.frames]
    ours = [frame for one in found for frame in one.frames]
    for name in ("inner_A", "inner_B"):
        assert ours.count(name) == theirs.count(name) > 50


def test_samples_of_before_keep_what_was_mapped_then() -> None:
    records = (
        made.mmap2(9, 0x1000, 0x1000, b"/lib/a", 1)
        + made.sample(9, 2, user=[0x1100])
        + made.mmap2(9, 0x1000, 0x1000, b"/lib/b", 3, inode=8)
        + made.sample(9, 4, user=[0x1100])
        + made.mmap2(9, 0x5000, 0x1000, b"/lib/c", 5, inode=9)
        + made.sample(9, 6, user=[0x1100, 0x5100])
    )
    assert [one.modules for one in seen(made.file(records))[0]] == [["/lib/a"], ["/lib/b"], ["/lib/b", "/lib/c"]]


@needs_perf
def test_memory_over_a_part_of_a_program_leaves_the_rest_of_it(tmp_path: Path) -> None:
    program = compiled(tmp_path, OVER_ITS_OWN_TEXT, "gcc", "-O1", "-fno-omit-frame-pointer")
    found, _ = seen(recorded(tmp_path / "remap.data", str(program)), symbols=True)
    innermost = [frame for one in found for frame in one.frames]
    assert innermost.count("before") > 30
    assert innermost.count("after") > 30


@needs_perf
@pytest.mark.skipif(not os.path.exists("/sys/kernel/notes"), reason="the kernel does not show its build id")
def test_the_kernel_is_found_where_mappings_carry_build_ids(tmp_path: Path) -> None:
    path = recorded(tmp_path / "ids.data", "sh", "-c", "i=0; while [ $i -lt 300 ]; do /bin/true; i=$((i+1)); done",
                    options=("-a", "--buildid-mmap"))  # fmt: skip
    assert b"[kernel.kallsyms]" in Path(path).read_bytes()
    found, opened = seen(path, symbols=True)
    kernel = [name for one in found for name, module in zip(one.frames, one.modules, strict=True) if module == "[kernel]"]
    assert len(kernel) > 100
    assert sum(map(bool, kernel)) > 0.95 * len(kernel)
    assert not any("the kernel's functions" in note for note in opened.notes)


def test_another_kernel_is_told_by_the_build_id_of_its_mapping() -> None:
    from tests.sources.sampling.made_records import text

    head = bytes.fromhex("ffffffff00000000") + b"".join(
        value.to_bytes(8, "little") for value in (0xFFFFFFFF81000000, 1 << 24, 0xFFFFFFFF81000000)
    )
    body = head + bytes([20, 0, 0, 0]) + b"\x55" * 20 + bytes(8) + text(b"[kernel.kallsyms]_text") + made.trailer(0, 0, 0)
    raw = made.file(record(10, body, misc=1 << 14 | 1) + made.sample(9, 5, kernel=[0xFFFFFFFF81001000]))
    _, opened = seen(raw, symbols=True)
    assert any("build id is not the recorded one" in note for note in opened.notes)


NO_TIME = IP | TID | CALLCHAIN


def untimed(raw: bytes, pid: int, time: int) -> bytes:
    """The same record without a time: what ends it is shorter."""
    kind, misc = int.from_bytes(raw[:4], "little"), int.from_bytes(raw[4:6], "little")
    return record(kind, raw[8:].removesuffix(made.trailer(pid, time, 0)) + made.trailer(pid, time, 0, NO_TIME), misc)


def test_without_times_the_order_of_the_file_counts() -> None:
    records = (
        made.sample(9, 0, user=[0x9100], fields=NO_TIME)
        + untimed(made.comm(9, b"first", 3), 9, 3)
        + untimed(made.mmap2(9, 0x1000, 0x1000, b"/lib/a", 1), 9, 1)
        + made.sample(9, 0, user=[0x1100], fields=NO_TIME)
        + untimed(made.mmap2(9, 0x1000, 0x1000, b"/lib/b", 2, inode=8), 9, 2)
        + untimed(made.comm(9, b"second", 1), 9, 1)
        + made.sample(9, 0, user=[0x1100], fields=NO_TIME)
    )
    found, opened = seen(made.file(records, [made.Attr(sample=NO_TIME, period=100)]))
    assert [(one.comm, one.modules, one.time) for one in found] == [
        ("", [""], 0),
        ("first", ["/lib/a"], 10_000_000),
        ("second", ["/lib/b"], 20_000_000),
    ]
    assert any("made up, in the order of the file, 10 ms" in note for note in opened.notes)
    assert opened.about["times"] == "made up"


@pytest.mark.ci
@needs_perf
def test_names_and_places_are_right_without_times(tmp_path: Path) -> None:
    burn = "i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done; "
    command = ("dash", "-c", f"{burn} exec bash -c '{burn}'") if shutil.which("dash") else ("sh", "-c", burn)
    path = recorded(tmp_path / "thread.data", *command, options=("--per-thread",))
    assert not looked(path)._event.sample & TIME, "perf gave samples a time"
    found, _ = seen(path, symbols=True)
    theirs = subprocess.run(
        ["perf", "script", "-i", path, "-G", "-F", "comm"], check=True, capture_output=True, text=True
    ).stdout.split()
    assert len(theirs) > 20
    assert [one.comm for one in found] == theirs
    assert {one.modules[-1].rsplit("/", 1)[-1] for one in found if one.comm == "bash" and one.modules} & {"bash"}


JIT = """
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
__attribute__((noinline, aligned(4096))) long code(long count) {
  volatile long sum = 0;
  for (long i = 0; i < count; i++) sum += i;
  return sum;
}
__attribute__((noinline, aligned(4096))) int main(int count, char **names) {
  char *place = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), path[64];
  memcpy(place, (void *)code, 4096);
  snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
  FILE *file = fopen(path, "w");
  fprintf(file, "%lx 1000 made_at_run_time\\n", (unsigned long)place);
  fclose(file);
  ((long (*)(long))place)(250000000);
  puts(path);
  return 0;
}
"""


@needs_perf
def test_what_a_jit_left_of_its_names_is_read_when_it_has_ended(tmp_path: Path) -> None:
    program = compiled(tmp_path, JIT, "gcc", "-O1", "-fno-omit-frame-pointer")
    path = str(tmp_path / "jit.data")
    command = ["perf", "record", "-q", "-e", "cpu-clock", "-F", "499", "-g", "-o", path, "--", str(program)]
    left = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    try:
        names = [frame for one in seen(path, symbols=True)[0] for frame in one.frames]
        assert names.count("made_at_run_time") > 20
        os.chown(left, 12345, 12345)
        names = [frame for one in seen(path, symbols=True)[0] for frame in one.frames]
        assert "made_at_run_time" not in names, "anybody may have put that there"
    finally:
        os.unlink(left)


def test_a_process_that_has_the_number_of_one_before_it_is_another() -> None:
    alive = perf_kernel.Alive(Root(), time.CLOCK_BOOTTIME)
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    assert alive(os.getpid(), now)
    assert alive(1, now)
    assert not alive(os.getpid(), 1_000_000_000)
    assert not alive((1 << 22) + 1, now)
    assert not perf_kernel.Alive(Root(), time.CLOCK_REALTIME)(os.getpid(), time.time_ns())


@pytest.mark.ci
@needs_perf
@pytest.mark.parametrize("what", ["gone", "another", "not cached"])
def test_a_program_that_perf_has_kept_gives_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    program = compiled(tmp_path, OVER_ITS_OWN_TEXT, "gcc", "-O1", "-fno-omit-frame-pointer", "-Wl,--build-id")
    path = recorded(tmp_path / "kept.data", str(program))
    if not [*tmp_path.glob(".debug/.build-id/*/*/elf")]:
        pytest.skip("perf keeps no files here")
    program.unlink()
    if what == "another":
        compiled(tmp_path, OVER_ITS_OWN_TEXT.replace("0.2", "0.1"), "gcc", "-O0", "-Wl,--build-id")
    elif what == "not cached":
        shutil.rmtree(tmp_path / ".debug")
    names = [frame for one in seen(path, symbols=True)[0] for frame in one.frames]
    assert (names.count("before") > 30) is (what != "not cached")
