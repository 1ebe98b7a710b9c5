"""The walk on the real kernel: zombies named and counted, under churn, with groups freed between two runs, on each fallback."""

import dataclasses
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import Unreadable
from exhume.kernel.bpf import Btf, Features, Member
from exhume.sources import memcg_program, memcg_walk
from exhume.sources.memcg_program import Fields
from exhume.sources.memcg_walk import MemcgWalk, walk
from exhume.sources.zombie_groups import collapse
from tests import zombies as made
from tests.kernel.bpf.made_btf import ENUM, MadeBtf
from tests.kernel.bpf.needs import each_fallback, needs_bpf
from tests.sources.latency import loaded
from tests.zombies import MEMORY, PARENT, directories, zombies

_WHY_NOT = made.unavailable()
needs_zombies = pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT or "zombies can be made")
real = [needs_bpf, needs_zombies]

PAGE = os.sysconf("SC_PAGE_SIZE")
# Pages that a CPU has not put on their list yet: at most PAGEVEC_SIZE (31 since 6.10, 15 before) of each kind.
IN_FLIGHT = 64

_numbers = count()


def fresh() -> str:
    """A name that no test had before: what one of them leaves behind takes a moment to be freed, and keeps its path."""
    return f"walk-{os.getpid()}-{next(_numbers)}"


def inside(path: Path) -> str:
    """A directory as the walk calls it."""
    return "/" + str(path.relative_to(MEMORY))


def below(found: MemcgWalk, path: Path) -> dict[str, int]:
    """Row by path of what lies below a directory."""
    rows = {name: row for row, name in enumerate(found.paths()) if name.startswith(inside(path) + "/")}
    assert len(rows) == sum(name.startswith(inside(path) + "/") for name in found.paths()), "a path came up twice"
    return rows


def rows_of(places: dict[str, int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(sorted(places.values()), np.int64)


@contextmanager
def our_directory(name: str) -> Iterator[Path]:
    path = PARENT / f"{fresh()}-{name}"
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        made.remove(path)


def visible() -> dict[str, int]:
    """Inode number of every directory of the hierarchy, by its path as the walk calls it."""
    found = {}
    for path, _, _ in os.walk(MEMORY):
        with suppress(FileNotFoundError):
            found[inside(Path(path)).rstrip("/.") or "/"] = os.stat(path).st_ino
    return found


def memory_stat(path: Path) -> dict[str, int]:
    return {name: int(value) for name, value in map(str.split, (path / "memory.stat").read_text().splitlines())}


class TestWhatIsThere:
    pytestmark = real

    @each_fallback
    def test_every_zombie_is_found_under_its_parent_by_its_name(self, features: Features) -> None:
        with zombies(300, below=fresh(), held=True) as parent:
            found = walk(features)
            rows = below(found, parent)
            assert set(rows) == {f"{inside(parent)}/z{i}" for i in range(300)}
            assert found.dying[rows_of(rows)].all()
            assert found.complete

    def test_twenty_groups_have_their_exact_counts(self) -> None:
        counts = {f"{fresh()}-group": 7 + 13 * i for i in range(20)}
        with ExitStack() as stack:
            for name, number in counts.items():
                stack.enter_context(zombies(number, below=name, held=True))
            found = walk()
            groups = {group.path: len(group.members) for group in collapse(found.places(found.zombies))}
        for name, number in counts.items():
            assert groups[f"/{PARENT.name}/{name}/z*"] == number

    def test_a_walk_that_differs_from_the_kernels_count_says_that_groups_moved(self) -> None:
        with zombies(500, below=fresh(), held=True) as parent:
            found = walk()
            assert len(below(found, parent)) == 500
            assert found.counted > 500
            assert found.moved or len(found) == found.counted
            assert len(np.unique(found.serial)) == len(found)
            assert found.parent[0] == -1
            assert found.paths([0]) == ["/"]

    def test_directories_are_live_and_carry_their_inode_and_their_age(self) -> None:
        with directories(150, below=fresh()) as parent:
            found = walk()
            rows = below(found, parent)
            order = [rows[f"{inside(parent)}/d{i}"] for i in range(150)]
            assert len(rows) == 150
            assert not found.dying[order].any()
            assert found.id[order].tolist() == [os.stat(parent / f"d{i}").st_ino for i in range(150)]
            assert (np.diff(found.serial[order].astype(np.int64)) > 0).all()
            assert found.empty[order].all()

    def test_live_directories_are_all_of_those_that_can_be_seen(self) -> None:
        """Others make and remove groups meanwhile: what was there before and after was there during the walk."""
        with directories(20, below=fresh()) as parent:
            before = visible()
            found = walk()
            after = visible()
            live = np.flatnonzero(~found.dying).tolist()
            paths = found.paths(live)
            assert before.items() & after.items() <= dict(zip(paths, found.id[live].tolist(), strict=True)).items()
            assert {path for path in paths if path.startswith(inside(parent))} == {
                path for path in before if path.startswith(inside(parent))
            }

    @pytest.mark.parametrize("tmpfs", [False, True], ids=["a file", "tmpfs"])
    def test_what_pins_a_zombie_is_told_apart(self, tmpfs: bool) -> None:
        with zombies(400, below=fresh(), tmpfs=tmpfs, held=not tmpfs) as parent:
            found = walk()
            rows = rows_of(below(found, parent))
            if (
                not tmpfs
                and subprocess.run(["stat", "-fc", "%T", tempfile.gettempdir()], capture_output=True).stdout == b"tmpfs\n"
            ):
                pytest.skip("the directory for temporary files is on tmpfs")
            right, wrong = (found.anon_bytes, found.file_bytes) if tmpfs else (found.file_bytes, found.anon_bytes)
            assert not wrong[rows].any()
            assert np.isin(right[rows], (0, PAGE)).all()
            assert (right[rows] == PAGE).sum() >= 400 - IN_FLIGHT
            assert (found.usage_bytes[rows] >= PAGE).all()
            assert not found.swap_bytes[rows].any()
            assert not found.empty[rows].any()

    def test_memory_of_a_live_group_is_sorted_as_memory_stat_sorts_it(self) -> None:
        with our_directory("live") as path, tempfile.NamedTemporaryFile() as file:
            made_by = subprocess.Popen(
                [sys.executable, "-c", _HOLD_MEMORY, str(path), file.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            assert made_by.stdout is not None
            assert made_by.stdout.readline() == b"ready\n"
            before = memory_stat(path)
            found = walk()
            after = memory_stat(path)
            made_by.communicate(b"\n")
            row = found.paths().index(inside(path))
            slack = 2 * IN_FLIGHT * PAGE
            # The kernel may evict clean pages meanwhile.
            for kind, told in (("anon", found.anon_bytes[row]), ("file", found.file_bytes[row])):
                sizes = [stat[f"active_{kind}"] + stat[f"inactive_{kind}"] for stat in (before, after)]
                assert min(sizes) - slack <= told <= max(sizes) + slack
            assert found.anon_bytes[row] + found.swap_bytes[row] >= 8 << 20

    def test_a_dead_parent_of_a_zombie_has_no_memory_of_its_own(self) -> None:
        with our_directory("nest") as path:
            home = made.own_cgroup()
            with tempfile.NamedTemporaryFile() as file, made.Held() as pages:
                (path / "outer" / "inner").mkdir(parents=True)
                try:
                    for i in range(5):
                        made.one(path / "outer" / "inner", f"z{i}", file.fileno(), i)
                        pages.page(file.fileno(), i)
                finally:
                    made._move(home)
                os.rmdir(path / "outer" / "inner")
                os.rmdir(path / "outer")
                found = walk()
                rows = below(found, path)
                outer = rows[f"{inside(path)}/outer"]
                assert found.dying[rows_of(rows)].all()
                assert found.empty[outer]
                assert found.usage_bytes[outer] <= found.kernel_bytes[outer], "only what the kernel had for itself is left"
                assert found.places([rows[f"{inside(path)}/outer/inner/z3"]]) == [(inside(path), "/outer/inner/z3")]

    def test_hostile_names_are_carried_as_data(self) -> None:
        names = [b"\x1b[31mred", b"a\tb\r", "ü\u202ex".encode(), b"\xff\xfe", b"n" * 255, b"*<id>", b" ", b"..."]
        with our_directory("hostile") as path:
            for name in names:
                os.mkdir(os.path.join(os.fsencode(path), name))
            found = walk()
            at = found.paths().index(inside(path))
            children = np.flatnonzero(found.parent == at).tolist()
            assert [found.names[row] for row in children] == names
            assert f"{inside(path)}/\\xff\\xfe" in found.paths(children)

    def test_a_renamed_group_has_its_new_name(self) -> None:
        with our_directory("rename") as path:
            (path / "before").mkdir()
            (path / "before").rename(path / "after")
            assert list(below(walk(), path)) == [f"{inside(path)}/after"]

    def test_groups_deeper_than_a_run_is_long_are_found(self) -> None:
        with our_directory("deep") as path:
            deepest = path
            for level in range(100):
                deepest = deepest / f"l{level}"
                deepest.mkdir()
            assert inside(deepest) in walk().paths()

    def test_a_walk_is_made_of_many_short_sections(self) -> None:
        """How long each is needs a quiet machine: bench/zombies.py measures it."""
        with zombies(1000, below=fresh(), tmpfs=True):
            found = walk()
            assert found.calls > 1000 // memcg_walk.STEPS
            assert found.longest_call_ns > 0


_HOLD_MEMORY = """
import mmap, os, sys
directory, name = sys.argv[1:]
open(os.path.join(directory, "tasks"), "w").write("0")
held = mmap.mmap(-1, 8 << 20)
for at in range(0, 8 << 20, mmap.PAGESIZE):
    held[at] = 1
with open(name, "wb") as file:
    file.write(bytes(4 << 20))
print("ready", flush=True)
sys.stdin.readline()
"""


class TestWhileTheWorldMoves:
    pytestmark = real

    def test_churn_neither_doubles_nor_invents_nor_hangs(self) -> None:
        stop = multiprocessing.Event()
        with our_directory("churn") as path:
            workers = [multiprocessing.Process(target=_churn, args=(str(path), number, stop)) for number in range(2)]
            for worker in workers:
                worker.start()
            try:
                walks = moved = 0
                deadline = time.monotonic() + 120
                while walks < 20 or not moved:
                    assert time.monotonic() < deadline, "no group came or went during a walk"
                    found = walk()
                    walks, moved = walks + 1, moved + found.moved
                    assert found.complete
                    assert len(np.unique(found.serial)) == len(found)
                    assert len(np.unique(found.id)) == len(found)
                    for name in below_all(found, path):
                        assert re.fullmatch(r"/c[01](/m\d+(/sub)?)?", name), name
            finally:
                stop.set()
                for worker in workers:
                    worker.join()

    @pytest.mark.parametrize("case", ["the last one seen", "it and all before it", "its whole parent"])
    @pytest.mark.parametrize("features", [Features(), Features(mmapable_arrays=False, test_run=False)], ids=["as found", "old"])
    def test_a_group_freed_between_two_runs_loses_no_other(
        self, case: str, features: Features, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(memcg_walk, "STEPS", 8)
        with our_directory("freed") as path:
            everything = {path / f"a{i}" / f"b{j}" / f"c{k}" for i in range(4) for j in range(5) for k in range(5)}
            for directory in sorted(everything):
                directory.mkdir(parents=True)
            everything |= {directory.parent for directory in everything} | {directory.parent.parent for directory in everything}
            removed = _Remover(path, case, monkeypatch)
            found = walk(features)
            names = Counter(below_all(found, path))
        assert removed.lost, "no resume point was ever gone: nothing was tested"
        assert found.moved
        assert found.complete
        assert set(names.values()) == {1}
        assert {f"/{directory.relative_to(path)}" for directory in everything - removed.gone} <= set(names)
        assert set(names) <= {f"/{directory.relative_to(path)}" for directory in everything}

    def test_kill_9_in_the_middle_leaves_nothing(self) -> None:
        with subprocess.Popen(
            [sys.executable, "-c", _STOP_IN_THE_MIDDLE],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        ) as walker:
            assert walker.stdout is not None
            assert walker.stdout.readline() == b"in the middle\n"
            programs, maps = loaded.of_process(walker.pid), loaded.maps_of_process(walker.pid)
            walker.send_signal(signal.SIGKILL)
        assert programs
        assert maps
        assert loaded.gone(programs)
        assert loaded.maps_gone(maps)


_STOP_IN_THE_MIDDLE = """
import signal
from exhume.sources import memcg_walk
run = memcg_walk._Walker._run

def stop(walker):
    state = run(walker)
    if walker._calls == 2:
        print("in the middle", flush=True)
        signal.pause()
    return state

memcg_walk._Walker._run = stop
memcg_walk.walk()
"""


def below_all(found: MemcgWalk, path: Path) -> list[str]:
    """What lies below a directory, from there on, as often as it was found."""
    start = inside(path) + "/"
    return [name[len(start) - 1 :] for name in found.paths() if name.startswith(start)]


def _churn(path: str, number: int, stop: Event) -> None:
    """As fast as it can: make, and remove what is 200 younger or the youngest but one, so that both ends of the list move."""
    base = f"{path}/c{number}"
    os.mkdir(base)
    alive: list[str] = []
    made_so_far = 0
    while not stop.is_set():
        alive.append(f"{base}/m{made_so_far}")
        os.mkdir(alive[-1])
        if made_so_far % 3 == 0:
            os.mkdir(alive[-1] + "/sub")
        made_so_far += 1
        if len(alive) > 200:
            gone = alive.pop(0 if made_so_far % 2 else -2)
            if os.path.exists(gone + "/sub"):
                os.rmdir(gone + "/sub")
            os.rmdir(gone)


class _Remover:
    """After each run, removes what the walk stands on, and waits until the kernel has let go of it."""

    def __init__(self, path: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gone: set[Path] = set()
        self.lost = 0
        run, go_on_from = memcg_walk._Walker._run, memcg_walk._Walker._go_on_from
        busy = False

        def run_and_remove(walker: memcg_walk._Walker) -> np.void:
            nonlocal busy
            state = run(walker)
            if walker._calls > 1 and not busy:
                busy = True
                columns, names, parent = walker._found.consistent()
                on = np.flatnonzero(columns["serial"] == state["serial"]).tolist()
                while on and parent[on[-1]] >= 0:
                    on.append(int(parent[on[-1]]))
                self._remove(MEMORY.joinpath(*(os.fsdecode(names[row]) for row in reversed(on[:-1]))), path, case)
                busy = False
            return state

        def counted(walker: memcg_walk._Walker, *way: int) -> None:
            self.lost += not busy
            go_on_from(walker, *way)

        monkeypatch.setattr(memcg_walk._Walker, "_run", run_and_remove)
        monkeypatch.setattr(memcg_walk._Walker, "_go_on_from", counted)

    def _remove(self, cursor: Path, path: Path, case: str) -> None:
        if path not in cursor.parents or not cursor.exists():
            return
        doomed = {cursor, *cursor.rglob("*/")}
        if case != "the last one seen":
            doomed |= {at for sibling in cursor.parent.iterdir() if sibling.is_dir() for at in (sibling, *sibling.rglob("*/"))}
            doomed -= {at for at in doomed if case == "it and all before it" and self._is_after(at, cursor)}
        if case == "its whole parent" and cursor.parent != path:
            doomed |= {cursor.parent}
        for directory in sorted(doomed, key=lambda at: -len(at.parts)):
            if directory.is_dir():
                directory.rmdir()
                self.gone.add(directory)
        left = {f"/{at.relative_to(MEMORY)}" for at in doomed}
        deadline = time.monotonic() + 120
        while left & set(walk().paths()):
            assert time.monotonic() < deadline, "the kernel does not let go of an empty group"
            time.sleep(0.005)

    @staticmethod
    def _is_after(directory: Path, cursor: Path) -> bool:
        level = len(cursor.parts) - 1
        return directory.parts[level] > cursor.parts[level]


class TestWithLess:
    @needs_bpf
    def test_a_kernel_without_any_optional_field_still_gives_the_tree(self, monkeypatch: pytest.MonkeyPatch) -> None:
        fields = dataclasses.replace(
            Fields.of(Btf.vmlinux(), generations=False),
            kn_id=None,
            dying=None,
            usage=None,
            swap=None,
            kmem=None,
            nodeinfo=None,
            lists=None,
            hierarchy=None,
            controllers=None,
            total=None,
            live=None,
            dying_count=None,
            released=0,
        )
        monkeypatch.setattr(Fields, "of", lambda *_, **__: fields)
        found = walk()
        monkeypatch.undo()
        whole = walk()
        assert set(found.serial.tolist()) & set(whole.serial.tolist())
        assert set(found.paths()) & set(whole.paths())
        assert found.counted == -1
        assert not found.kinds
        assert not found.usage_bytes.any()

    @needs_bpf
    @needs_zombies
    def test_a_kernel_without_css_dying_calls_dying_what_is_not_online(self, monkeypatch: pytest.MonkeyPatch) -> None:
        fields = dataclasses.replace(Fields.of(Btf.vmlinux(), generations=False), dying=None)
        monkeypatch.setattr(Fields, "of", lambda *_, **__: fields)
        with zombies(20, below=fresh(), held=True) as parent:
            deadline = time.monotonic() + 120  # they go offline in a work queue
            while time.monotonic() < deadline:
                found = walk()
                rows = below(found, parent)
                if found.dying[rows_of(rows)].all():
                    break
            assert len(rows) == 20
            assert found.dying[rows_of(rows)].all()
            assert not found.dying[found.paths().index(inside(parent))]

    @needs_bpf
    def test_a_switched_off_controller_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        btf = Btf.vmlinux()
        fields = Fields.of(btf, generations=False)
        monkeypatch.setattr(Fields, "of", lambda *_, **__: dataclasses.replace(fields, memory_id=31))
        with pytest.raises(Unreadable, match="the memory controller is switched off"):
            walk()

    def test_a_kernel_without_btf_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Btf.vmlinux.__func__, "__defaults__", ("/no/such/btf",))  # type: ignore[attr-defined]
        with pytest.raises(Unreadable, match="CONFIG_DEBUG_INFO_BTF"):
            walk()

    @pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv to give it up")
    def test_without_privilege_the_missing_capability_is_named(self) -> None:
        code = (
            "from exhume.errors import Unreadable\nfrom exhume.sources.memcg_walk import walk\n"
            "try:\n    walk()\nexcept Unreadable as why:\n    print(why)"
        )
        done = subprocess.run(
            ["setpriv", "--bounding-set=-all", sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert "CAP_BPF" in done.stdout, done.stderr
        assert done.stdout.count("\n") == 1


class TestWithoutAKernel:
    """What is computed from records, on records that no kernel at hand writes."""

    def fields(self, generations: Member | None = None) -> Fields:
        tree = dict.fromkeys((field.name for field in dataclasses.fields(Fields)), 0)
        lists = Member(0, 8 * 2 * 5, 8)
        optional: dict[str, object] = {"lists": lists, "generations": generations, "kn_id": None, "controllers": None}
        return Fields(**{**tree, **optional, "list_names": (0, 1, 2, 3, 4), "list_count": 5, "kernel_pins": False})  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("release", "objcg", "gathered", "slab", "pages"),
        [
            ("5.4", False, "nr_anon", True, True),
            ("5.8", False, "nr_pages", True, True),
            ("5.10", True, "nr_pages", False, True),
            ("5.11, which has MEMCG_DATA_KMEM", True, "nr_pages", False, True),
            ("5.13", True, "nr_memory", False, False),
        ],
    )
    def test_what_kernel_memory_pins_is_asked_of_btf(
        self, release: str, objcg: bool, gathered: str, slab: bool, pages: bool
    ) -> None:
        b = MadeBtf()
        u64 = b.integer("u64", 8)
        b.record("uncharge_gather", 16, ("memcg", u64, 0), (gathered, u64, 64))
        b.add(ENUM, "page_memcg_data_flags", 4, b.name("MEMCG_DATA_KMEM"), 2, vlen=1)
        if objcg:
            b.record("obj_cgroup", 8, ("memcg", u64, 0))
        btf = Btf(b.raw())
        assert (memcg_program.slab_pins(btf), memcg_program.kernel_pins(btf)) == (slab, pages), release

    @pytest.mark.parametrize(
        ("kernel_pins", "slab_pins", "pinning"),
        [(True, True, [0, 8192, 8192]), (True, False, [0, 0, 8192]), (False, False, [0, 0, 0])],
        ids=["5.4", "5.10", "5.13"],
    )
    def test_a_stale_slab_charge_does_not_outrank_a_page_of_cache(
        self, kernel_pins: bool, slab_pins: bool, pinning: list[int]
    ) -> None:
        zero, kernel = np.zeros(3, np.int64), np.array([0, 8192, 8192])
        file = np.array([0, 4096, 0])
        serial = np.arange(1, 4, dtype=np.uint64)
        found = MemcgWalk(
            id=serial, serial=serial, parent=np.array([-1, 0, 0]), dying=np.array([False, True, True]),
            usage_bytes=file + kernel, file_bytes=file, anon_bytes=zero, unevictable_bytes=zero,
            kernel_bytes=kernel, swap_bytes=zero,
            names=[b"", b"cache", b"kernel"], hierarchy=1, kinds=True, kernel_pins=kernel_pins, counted=3, moved=False,
            complete=True, calls=1, longest_call_ns=1, slab_pins=slab_pins,
        )  # fmt: skip
        assert found.pinning_kernel_bytes.tolist() == pinning
        assert found.empty.tolist() == [True, False, pinning[2] == 0]

    def test_pages_of_all_nodes_zones_and_generations_are_summed(self) -> None:
        fields = self.fields(Member(0, 8 * 4 * 2 * 2, 8))
        record = fields.record(nodes=3)
        rows = np.zeros(1, record)
        rows["css"] = rows["serial"] = 1
        rows["lists"][0, :, :, 0] = 1  # 3 nodes, 2 zones: 6 inactive anon
        rows["lists"][0, :, :, 3] = 10
        rows["lists"][0, :, :, 4] = 100
        rows["generations"][0, 2, 3, 0, 1] = 1000
        rows["generations"][0, 0, 0, 1, 0] = 2000
        found = memcg_walk._Found(fields, record)
        found.add(rows.tobytes())
        columns = found.columns()
        assert (columns["anon"].tolist(), columns["file"].tolist(), columns["unevictable"].tolist()) == ([1006], [2060], [600])

    @given(
        st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=30),
    )
    def test_whatever_the_records_say_each_group_is_there_once_below_a_known_parent(
        self, groups: list[tuple[int, int]]
    ) -> None:
        fields = self.fields()
        record = fields.record(nodes=1)
        rows = np.zeros(len(groups), record)
        rows["css"] = 1
        rows["serial"] = [serial for serial, _ in groups]
        rows["parent_serial"] = [parent for _, parent in groups]
        rows["parent"] = rows["parent_serial"]
        rows["name_bytes"] = 2
        found = memcg_walk._Found(fields, record)
        found.add(rows.tobytes())
        columns, names, parent = found.consistent()
        assert len(names) == len(parent) == len(np.unique(columns["serial"])) >= 1
        assert (parent < np.arange(len(parent))).all()
        assert (columns["serial"][parent[1:]] == columns["parent_serial"][1:]).all()

    @pytest.mark.parametrize(
        ("text", "nodes"), [("0\n", (0,)), ("0-1\n", (0, 1)), ("0,2-4,9\n", (0, 2, 3, 4, 9)), ("1,0-1", (0, 1))]
    )
    def test_memory_nodes_are_read_in_the_kernels_notation(self, text: str, nodes: tuple[int, ...]) -> None:
        assert memcg_walk.parse_nodes(text) == nodes

    @given(st.one_of(st.text(), st.from_regex(r"[0-9,-]{0,30}")))
    def test_a_strange_list_of_nodes_is_refused_or_small(self, text: str) -> None:
        with suppress(ValueError):
            assert len(memcg_walk.parse_nodes(text)) <= 1024
