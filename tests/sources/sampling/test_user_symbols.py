"""Names in user space, of real processes: their files wherever they are, and files that are a trap."""

import ctypes
import glob
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.recording.source_state import Limit
from exhume.sources.sampling import symbol_children
from exhume.sources.sampling.symbol_messages import Named, Reply, Told, pack_functions
from exhume.sources.sampling.user_symbols import Function, Image, UserSymbols
from tests.sources.sampling.made_elf import TEXT, VADDR, Symbol, made
from tests.sources.sampling.symbol_processes import (
    CPP,
    NEW_KEYS,
    PROGRAM,
    RUST,
    ask,
    collected,
    compiled,
    image_of,
    names,
    offsets,
    running,
)

SRC = str(Path(__file__).resolve().parents[3])
FIRST = made(Symbol(b"in_the_container", VADDR, 0x100))


def needs_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")


@pytest.fixture(scope="module")
def symbols() -> Iterator[UserSymbols]:
    """The same for all tests that leave the children as they are."""
    found = UserSymbols()
    yield found
    found.close()


@pytest.fixture
def fresh() -> Iterator[UserSymbols]:
    found = UserSymbols()
    yield found
    found.close()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("c"), PROGRAM)


@pytest.fixture(scope="module")
def static_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("static"), PROGRAM, "gcc", "-static", "-Wl,--build-id")


@pytest.fixture
def jail(tmp_path: Path, static_program: Path) -> Path:
    """A root directory that holds one program."""
    root = tmp_path / "jail"
    for name in ("tmp", "lib", "etc"):
        (root / name).mkdir(parents=True)
    shutil.copy(static_program, root / "program")
    return root


def children(symbols: UserSymbols) -> list[int]:
    assert symbols._children is not None
    return [child.process.pid for child in symbols._children.both]


# Where names come from


def test_functions_of_a_c_program_have_their_names_static_ones_too(symbols: UserSymbols, program: Path) -> None:
    at = offsets(program)
    with running(program) as pid:
        told = ask(symbols, image_of(pid, "program"), pid, at["dig_here"] + 3, at["inner_static"], at["main"] + 1)
    assert told == ["dig_here", "inner_static", "main"]


def test_a_range_is_the_whole_function(symbols: UserSymbols, program: Path) -> None:
    at = offsets(program)["dig_here"]
    with running(program) as pid:
        symbols.ask(41, image_of(pid, "program"), [pid], [at + 3, at + 4])
        found = collected(symbols)
    assert [(function.key, function.start, function.name) for function in found] == [(41, at, "dig_here")]
    assert found[0].end > at + 4


def test_functions_of_this_python_and_its_libraries(symbols: UserSymbols) -> None:
    wanted = {"PyObject_Repr": ctypes.pythonapi.PyObject_Repr, "PyList_Append": ctypes.pythonapi.PyList_Append}
    for name, function in wanted.items():
        address = ctypes.cast(function, ctypes.c_void_p).value or 0
        for line in Path("/proc/self/maps").read_text().splitlines():
            words = line.split(None, 5)
            start, end = (int(part, 16) for part in words[0].split("-"))
            if start <= address < end:
                offset = address - start + int(words[2], 16)
                image = image_of(os.getpid(), words[5])
                assert ask(symbols, image, os.getpid(), offset + 2) == [name]


def test_cpp_names_are_demangled(symbols: UserSymbols, tmp_path: Path) -> None:
    pytest.importorskip("pycxxfilt", reason="the record extra is not installed")
    program = compiled(tmp_path, CPP, "g++")
    at = next(offset for name, offset in offsets(program).items() if "Spade" in name)
    with running(program) as pid:
        assert ask(symbols, image_of(pid, "program"), pid, at) == ["pit::Spade<int>::dig(int)"]


def test_rust_names_are_demangled(symbols: UserSymbols, tmp_path: Path) -> None:
    pytest.importorskip("pycxxfilt", reason="the record extra is not installed")
    program = compiled(tmp_path, RUST, "rustc", "--crate-name", "pit")
    at = next(offset for name, offset in offsets(program).items() if "dig_here" in name)
    with running(program) as pid:
        assert ask(symbols, image_of(pid, "program"), pid, at) == ["pit::dig_here"]


def test_a_stripped_program_is_unknown_and_asked_once(symbols: UserSymbols, program: Path, tmp_path: Path) -> None:
    at = offsets(program)
    stripped = tmp_path / "stripped"
    subprocess.run(["strip", "-o", stripped, program], check=True)
    with running(stripped) as pid:
        symbols.ask(42, image_of(pid, "stripped"), [pid], [at["dig_here"]])
        found = collected(symbols)
    assert [function.name for function in found] == [""]
    assert names(found, 42, at["main"]) == [""]
    assert "no symbols" in symbols.notes()[str(stripped)]


def test_a_separate_debug_file_is_found_by_build_id_in_the_process_own_root(symbols: UserSymbols, jail: Path) -> None:
    program = jail / "program"
    at = offsets(program)
    notes = subprocess.run(["readelf", "-n", program], capture_output=True, text=True, check=True).stdout
    build_id = notes.split("Build ID:")[1].split()[0]
    debug = jail / f"usr/lib/debug/.build-id/{build_id[:2]}/{build_id[2:]}.debug"
    debug.parent.mkdir(parents=True)
    subprocess.run(["objcopy", "--only-keep-debug", program, debug], check=True)
    subprocess.run(["strip", program], check=True)
    with running("/program", root=jail) as pid:
        image = image_of(pid, "program")
        assert ask(symbols, image, pid, at["dig_here"] + 1, at["main"], key=43) == ["dig_here", "main"]
        assert ask(symbols, image, pid, at["inner_static"], key=43) == ["inner_static"]


@pytest.mark.parametrize(
    ("build_id", "recorded", "numbered", "reason"),
    [
        (b"\x11" * 20, b"\x11" * 20, False, ""),
        (b"\x11" * 20, b"\x22" * 20, True, "its build id is not the one"),
        (b"", b"\x11" * 20, True, ""),
        (b"", b"\x11" * 20, False, "it has none"),
    ],
)
@pytest.mark.parametrize("noted_by", ["segment", "section"])
def test_the_recorded_build_id_says_which_file_it_is_and_its_number_where_it_has_none(
    symbols: UserSymbols, tmp_path: Path, build_id: bytes, recorded: bytes, numbered: bool, reason: str, noted_by: str
) -> None:
    path = tmp_path / "program"
    path.write_bytes(made(Symbol(b"dig_here", VADDR, 0x10), build_id=build_id, noted_by=noted_by))
    told = path.stat()
    device = os.major(told.st_dev), os.minor(told.st_dev)
    image = Image("elf", bytes(path), device, told.st_ino + (not numbered), recorded)
    assert ask(symbols, image, 1 << 22, TEXT + 4) == ["" if reason else "dig_here"]  # no process has that number
    assert reason in symbols.notes().get(str(path), "")


def test_functions_of_a_go_program_have_their_names_by_its_build_id(symbols: UserSymbols) -> None:
    go = Path(os.path.realpath(shutil.which("go") or ""))
    if not go.is_file() or shutil.which("readelf") is None:
        pytest.skip("Go or readelf is not installed")
    listed = subprocess.run(["readelf", "-n", go], capture_output=True, text=True, check=True).stdout
    at = offsets(go)
    if "Build ID:" not in listed or "runtime.mallocgc" not in at:
        pytest.skip(f"{go} has no GNU build id or no symbols")
    image = Image("elf", bytes(go), (0, 0), 0, bytes.fromhex(listed.split("Build ID:")[1].split()[0]))
    assert ask(symbols, image, os.getpid(), at["runtime.mallocgc"] + 9, at["main.main"]) == ["runtime.mallocgc", "main.main"]


def test_the_vdso_has_names(symbols: UserSymbols) -> None:
    image = Image("vdso", b"[vdso]", (0, 0), 0)
    symbols.ask(44, image, [os.getpid()], range(0, 0x2000, 16))
    found = symbols.answers()
    assert symbols.pending == 0
    assert {"clock_gettime", "__kernel_clock_gettime"} & {function.name for function in found}


def test_a_kind_that_is_not_known_is_unknown(symbols: UserSymbols) -> None:
    assert ask(symbols, Image("none", b"[vsyscall]", (0, 0), 0), os.getpid(), 0x10) == [""]


def test_a_process_that_has_ended_still_has_names_when_its_file_is_of_this_root(symbols: UserSymbols, program: Path) -> None:
    with running(program) as pid:
        image = image_of(pid, "program")
    assert ask(symbols, image, pid, offsets(program)["dig_here"]) == ["dig_here"]


def test_a_file_that_nobody_leads_to_now_can_be_asked_for_again(symbols: UserSymbols, jail: Path) -> None:
    at = offsets(jail / "program")["dig_here"]
    with running("/program", root=jail) as gone:
        image = image_of(gone, "program")._replace(path=b"/program")
    assert ask(symbols, image, gone, at, key=40) == [""]
    assert "gone" in symbols.notes()["/program"]
    with running("/program", root=jail) as pid:
        assert ask(symbols, image, pid, at, key=40) == ["dig_here"]


# Roots of their own


def test_a_program_that_is_only_in_its_own_root_and_mount_namespace(symbols: UserSymbols, jail: Path) -> None:
    needs_root()
    at = offsets(jail / "program")
    with running("unshare", "--mount", "chroot", jail, "/program") as pid:
        assert os.readlink(f"/proc/{pid}/root") == str(jail)
        assert ask(symbols, image_of(pid, "program"), pid, at["dig_here"]) == ["dig_here"]


def test_a_link_out_of_the_root_leads_into_it(symbols: UserSymbols, jail: Path) -> None:
    (jail / "etc/shadow").write_bytes(FIRST)
    (jail / "lib/absolute").symlink_to("/etc/shadow")
    (jail / "lib/upwards").symlink_to("../../../../../../../../etc/shadow")
    (jail / "lib/nowhere").symlink_to("/etc/passwd")
    with running("/program", root=jail) as pid:
        for name, told in (("absolute", "in_the_container"), ("upwards", "in_the_container"), ("nowhere", "")):
            assert ask(symbols, Image("elf", f"/lib/{name}".encode(), (0, 0), 0), pid, TEXT + 1) == [told]


def test_a_link_through_proc_is_refused(symbols: UserSymbols) -> None:
    path = f"/proc/{os.getpid()}/root{os.path.realpath(sys.executable)}".encode()
    assert ask(symbols, Image("elf", path, (0, 0), 0), os.getpid(), 0x1000) == [""]


@pytest.mark.parametrize("upper", ["same", "tmpfs"])
def test_a_file_of_overlayfs_by_the_numbers_that_perf_has_for_it(symbols: UserSymbols, jail: Path, upper: str) -> None:
    """Those of the file in the layer below, which stat(2) in the container does not show."""
    needs_root()
    place = jail.parent
    for name in ("up", "merged"):
        (place / name).mkdir()
    script = f"""
        set -e; cd {place}; {"mount -t tmpfs none up;" if upper == "tmpfs" else ""} mkdir up/upper up/work
        mount -t overlay overlay -o lowerdir=jail,upperdir=up/upper,workdir=up/work merged; exec chroot merged /program"""
    with running("unshare", "--mount", "sh", "-c", script) as pid:
        told = (jail / "program").stat()
        image = Image("elf", b"/program", (os.major(told.st_dev), os.minor(told.st_dev)), told.st_ino)
        assert ask(symbols, image, pid, offsets(jail / "program")["dig_here"]) == ["dig_here"]
        assert ask(symbols, image_of(pid, "program"), pid, offsets(jail / "program")["main"]) == ["main"]


def test_a_file_that_was_replaced_or_deleted_is_read_by_its_mapping(
    symbols: UserSymbols, program: Path, tmp_path: Path
) -> None:
    needs_root()
    copy = tmp_path / "moved"
    shutil.copy(program, copy)
    at = offsets(program)["dig_here"]
    with running(copy) as pid:
        image = image_of(pid, "moved")
        (tmp_path / "new").write_bytes(made(Symbol(b"wrong", VADDR, 0x1000)))
        os.replace(tmp_path / "new", copy)
        assert ask(symbols, image, pid, at) == ["dig_here"]
        copy.unlink()
        assert ask(symbols, image, pid, at) == ["dig_here"]
        assert image_of(pid, "moved").path.endswith(b" (deleted)")
        assert ask(symbols, image_of(pid, "moved"), pid, at) == ["dig_here"]


# Traps


@pytest.mark.parametrize(
    "trap", ["fifo", "device", "directory", "socket", "sparse", "truncated", "proc", "sysfs", "text", "empty"]
)
def test_a_trap_costs_its_own_names_and_no_others(symbols: UserSymbols, trap: str, program: Path, tmp_path: Path) -> None:
    path = tmp_path / trap
    if trap == "fifo":
        os.mkfifo(path)
    elif trap == "device":
        needs_root()
        os.mknod(path, 0o020666, os.makedev(1, 5))
    elif trap == "directory":
        path.mkdir()
    elif trap == "socket":
        with socket.socket(socket.AF_UNIX) as made_socket:
            made_socket.bind(str(path))
    elif trap == "sparse":
        path.write_bytes(FIRST)
        os.truncate(path, 1 << 40)
    elif trap == "truncated":
        path.write_bytes(FIRST[: TEXT + 0x1010])
    elif trap == "proc":
        path = Path("/proc/kallsyms")
    elif trap == "sysfs":
        path = Path("/sys/kernel/notes")
    else:
        path.write_bytes(b"no program\n" * 100 if trap == "text" else b"")
    trapped, other = next(NEW_KEYS), next(NEW_KEYS)
    symbols.ask(trapped, Image("elf", bytes(path), (0, 0), 0), [os.getpid()], [TEXT])
    with running(program) as pid:
        symbols.ask(other, image_of(pid, "program"), [pid], [offsets(program)["dig_here"]])
        found = collected(symbols)
    assert names(found, trapped, TEXT) == [""]
    assert names(found, other, offsets(program)["dig_here"]) == ["dig_here"]
    assert str(path) in symbols.notes()


def test_a_fifo_is_never_opened(symbols: UserSymbols, tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    assert ask(symbols, Image("elf", bytes(path), (0, 0), 0), os.getpid(), 1) == [""]
    with pytest.raises(OSError, match="No such device or address"):  # there is no reader, and a writer would have succeeded
        os.open(path, os.O_WRONLY | os.O_NONBLOCK)


@contextmanager
def hung(directory: Path, when: str) -> Iterator[int]:
    """The process that has a file system there which does not answer."""
    needs_root()
    command = [sys.executable, "-m", "tests.sources.sampling.hung_fuse", str(directory), when]
    process = subprocess.Popen(command, cwd=SRC, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        if process.stdout.readline() != "ready\n":
            pytest.skip(f"FUSE cannot be mounted: {process.stderr.read()}")
        yield process.pid
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("when", ["silent", "read"])
def test_a_file_system_that_hangs_costs_one_image(fresh: UserSymbols, when: str, program: Path, tmp_path: Path) -> None:
    at = offsets(program)["dig_here"]
    with running(program) as pid, hung(tmp_path, when) as other:
        image = image_of(pid, "program")
        # What a recorder blocks to have it by signalfd(2) its children inherit.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        assert ask(fresh, image, pid, at) == ["dig_here"]
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        fresh.ask(2, Image("elf", bytes(tmp_path / "lib.so"), (0, 0), 0), [other], [0x1000])
        fresh.ask(3, image, [pid], [at])
        found = collected(fresh)
        assert names(found, 2, 0x1000) == [""]
        assert names(found, 3, at) == ["dig_here"]
        assert list(fresh.notes()) == [str(tmp_path / "lib.so")]


def test_after_four_files_that_hang_in_the_kernel_no_more_are_opened(
    fresh: UserSymbols, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(symbol_children, "OVERDUE_S", 0.3)
    with hung(tmp_path, "lookup") as pid:
        for key in range(6):
            fresh.ask(key, Image("elf", bytes(tmp_path / f"lib{key}.so"), (0, 0), 0), [pid], [0x1000])
        found = collected(fresh)
        assert [names(found, key, 0x1000) for key in range(6)] == [[""]] * 6
        assert sum(_runs(str(child.process.pid)) for child in fresh._dead if child.hung) == 4
        assert fresh._children is None
        assert "hang" in fresh.notes()[str(tmp_path / "lib5.so")]
        assert ask(fresh, Image("elf", b"/bin/sh", (0, 0), 0), os.getpid(), 0x1000) == [""]


def test_a_name_that_grows_without_end_when_demangled_stays_as_it_is(symbols: UserSymbols, tmp_path: Path) -> None:
    """Each parameter is a function of two of the one before: thirty of them would be a gigabyte of text."""
    pytest.importorskip("pycxxfilt", reason="the record extra is not installed")
    bomb = b"_Z1fFviiE" + b"".join(b"FvS%s_S%s_E" % (number, number) for number in _substitutions(30))
    (tmp_path / "bomb").write_bytes(made(Symbol(bomb, VADDR, 0x10)))
    (tmp_path / "calm").write_bytes(FIRST)
    bad, good = next(NEW_KEYS), next(NEW_KEYS)
    for key, name in ((bad, "bomb"), (good, "calm")):
        symbols.ask(key, Image("elf", bytes(tmp_path / name), (0, 0), 0), [os.getpid()], [TEXT])
    found = collected(symbols)
    assert names(found, bad, TEXT) == [bomb.decode()]
    assert names(found, good, TEXT) == ["in_the_container"]


def _substitutions(count: int) -> Iterator[bytes]:
    """S_, S0_, S1_ ... of the Itanium ABI, in base 36."""
    yield b""
    digits = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    for number in range(count - 1):
        yield digits[number : number + 1]


# Perf maps


def jit_addresses(path: Path, word: str) -> list[int]:
    lines = [line.split(None, 2) for line in path.read_text(errors="replace").splitlines()]
    return [int(line[0], 16) for line in lines if len(line) == 3 and word in line[2]]


def test_functions_of_node_have_names(symbols: UserSymbols, tmp_path: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    script = tmp_path / "pit.js"
    script.write_text(
        "function digDeep(n) { return n < 2 ? n : digDeep(n - 1) + digDeep(n - 2) }\n"
        "digDeep(25); process.stdout.write('r'); setInterval(() => {}, 1000)\n"
    )
    with running("node", "--perf-basic-prof", script, cwd=tmp_path) as pid:  # it leaves a log where it runs
        path = Path(f"/tmp/perf-{pid}.map")
        try:
            addresses = jit_addresses(path, "digDeep")
            assert addresses
            told = ask(symbols, Image("perf-map", b"//anon", (0, 0), 0), pid, addresses[-1] + 1, 0x10)
        finally:
            path.unlink(missing_ok=True)
    assert "digDeep" in told[0]
    assert told[1] == ""


def pythons() -> list[str]:
    return [
        *glob.glob(os.path.expanduser("~/.pyenv/versions/3.1[2-9]*/bin/python3")),
        *filter(None, [shutil.which("python3.14")]),
    ]


def test_functions_of_python_have_names_by_its_perf_trampolines(symbols: UserSymbols) -> None:
    if not pythons():
        pytest.skip("there is no Python 3.12 or later")
    code = "def dig_deep():\n    print('r', flush=True)\n    import time; time.sleep(100)\ndig_deep()"
    with running(pythons()[0], "-X", "perf", "-c", code) as pid:
        path = Path(f"/tmp/perf-{pid}.map")
        try:
            addresses = jit_addresses(path, "py::dig_deep")
            if not addresses:
                pytest.skip("this Python has no perf trampolines")
            assert ask(symbols, Image("perf-map", b"//anon", (0, 0), 0), pid, addresses[0]) == ["dig_deep (<string>)"]
        finally:
            path.unlink(missing_ok=True)


def test_a_perf_map_that_grows_is_read_on_and_half_a_line_waits(symbols: UserSymbols, jail: Path) -> None:
    image = Image("perf-map", b"//anon", (0, 0), 0)
    with running("/program", root=jail) as pid:
        path = jail / f"tmp/perf-{pid}.map"
        path.write_text("1000 100 first\n2000 100 sec")
        assert ask(symbols, image, pid, 0x1010, 0x2010, key=45) == ["first", ""]
        with path.open("a") as file:
            file.write("ond\n3000 100 third\n")
        assert ask(symbols, image, pid, 0x2010, 0x3010, key=45) == ["second", "third"]


def test_a_perf_map_of_another_user_is_not_believed(symbols: UserSymbols, jail: Path) -> None:
    with running("/program", root=jail) as pid:
        path = jail / f"tmp/perf-{pid}.map"
        path.write_text("1000 100 first\n")
        os.chown(path, 12345, 12345)
        assert ask(symbols, Image("perf-map", b"//anon", (0, 0), 0), pid, 0x1010) == [""]
    assert "another user" in symbols.notes()["//anon"]


def test_a_perf_map_goes_by_the_number_that_the_process_has_inside(symbols: UserSymbols, jail: Path) -> None:
    needs_root()
    (jail / "tmp/perf-1.map").write_text("1000 100 inside\n")
    with running("unshare", "--pid", "--fork", "--kill-child", "chroot", jail, "/program") as outer:
        pid = int(Path(f"/proc/{outer}/task/{outer}/children").read_text().split()[0])
        assert ask(symbols, Image("perf-map", b"//anon", (0, 0), 0), pid, 0x1010) == ["inside"]


# The children


def test_the_reader_has_no_rights_and_no_files(symbols: UserSymbols, program: Path) -> None:
    needs_root()
    with running(program) as pid:
        ask(symbols, image_of(pid, "program"), pid, 0x1000)
        reader = children(symbols)[1]
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{reader}/status").read_text().splitlines() if ":\t" in line)
    assert status["Uid"].split() == status["Gid"].split() == ["65534"] * 4
    assert [int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")] == [0] * 5
    assert (status["NoNewPrivs"], status["Seccomp"], status["Groups"].strip()) == ("1", "2", "")
    assert os.listdir(f"/proc/{reader}/root") == []
    limits = Path(f"/proc/{reader}/limits").read_text()
    assert [line.split()[4] for line in limits.splitlines() if line.startswith("Max file size")] == ["0"]


def test_a_reader_that_may_not_start_is_the_reason_that_there_are_no_names(
    fresh: UserSymbols, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in says what the reader says on a machine with neither seccomp nor Landlock."""
    start = symbol_children._start
    refusal = Reply(Told.FAILED, 0, b"it cannot give up its rights").pack()
    code = f"import socket, sys; socket.socket(fileno=int(sys.argv[2])).send({refusal!r})"

    def refusing(module: str, control: socket.socket, link: socket.socket, *more: str) -> "subprocess.Popen[bytes]":
        if module != "symbol_reader":
            return start(module, control, link, *more)
        command = [sys.executable, "-c", code, "0", str(control.fileno())]
        return subprocess.Popen(command, pass_fds=(control.fileno(),))

    monkeypatch.setattr(symbol_children, "_start", refusing)
    with running(program) as pid:
        assert ask(fresh, image_of(pid, "program"), pid, 0x1000) == [""]
    expected = "only the kernel's functions have names: the symbol reader does not start: it cannot give up its rights"
    assert fresh.reasons == (Limit(expected),)


def test_children_hold_nothing_of_the_recorder_but_their_sockets(fresh: UserSymbols, program: Path, tmp_path: Path) -> None:
    with (tmp_path / "recording").open("w") as file, running(program) as pid:
        os.set_inheritable(file.fileno(), True)
        ask(fresh, image_of(pid, "program"), pid, 0x1000)
        for child in children(fresh):
            held = [os.readlink(name) for name in glob.glob(f"/proc/{child}/fd/*")]
            assert [name for name in held if not name.startswith(("/dev/null", "socket:")) and "program" not in name] == []


@pytest.mark.parametrize("which", [0, 1])
def test_a_child_that_is_killed_is_replaced(fresh: UserSymbols, program: Path, which: int) -> None:
    at = offsets(program)
    with running(program) as pid:
        image = image_of(pid, "program")
        assert ask(fresh, image, pid, at["dig_here"], key=1) == ["dig_here"]
        os.kill(children(fresh)[which], signal.SIGKILL)
        assert ask(fresh, image, pid, at["main"], key=1) == ["main"]
        assert fresh.notes() == {}


@pytest.mark.parametrize("which", [0, 1])
def test_a_child_that_somebody_stopped_is_replaced(
    fresh: UserSymbols, program: Path, which: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = offsets(program)
    with running(program) as pid:
        image = image_of(pid, "program")
        assert ask(fresh, image, pid, at["dig_here"], key=1) == ["dig_here"]
        os.kill(children(fresh)[which], signal.SIGSTOP)
        fresh.ask(1 + (which == 0), image, [pid], [at["main"]])
        monkeypatch.setattr(symbol_children, "START_S", 0.0)
        while fresh._children is not None:
            fresh.answers()
        monkeypatch.undo()
        assert names(collected(fresh), 1 + (which == 0), at["main"]) == ["main"]


def test_an_image_that_ends_the_reader_is_asked_for_once_even_if_the_opener_ends_with_it(
    fresh: UserSymbols, tmp_path: Path
) -> None:
    (tmp_path / "image").write_bytes(FIRST)
    image = Image("elf", bytes(tmp_path / "image"), (0, 0), 0)
    assert ask(fresh, image, os.getpid(), TEXT, key=1) == ["in_the_container"]
    assert fresh._children is not None
    fresh._children.reader.current = 1
    for child in reversed(children(fresh)):
        os.kill(child, signal.SIGKILL)
        while _runs(str(child)):
            time.sleep(0.002)
    fresh.ask(1, image, [os.getpid()], [TEXT + 0x80])
    fresh.ask(2, image, [os.getpid()], [TEXT + 0x80])
    found = collected(fresh)
    assert names(found, 1, TEXT + 0x80) == [""]
    assert names(found, 2, TEXT + 0x80) == ["in_the_container"]


def test_a_request_to_stop_is_for_the_recorder_not_for_its_children(symbols: UserSymbols, program: Path) -> None:
    with running(program) as pid:
        image = image_of(pid, "program")
        ask(symbols, image, pid, 0x1000)
        before = children(symbols)
        for child in before:
            os.kill(child, signal.SIGTERM)
            os.kill(child, signal.SIGINT)
        assert ask(symbols, image, pid, offsets(program)["main"]) == ["main"]
        assert children(symbols) == before


def test_a_recorder_that_is_killed_leaves_no_children(program: Path) -> None:
    code = (
        "import sys, time\n"
        "from exhume.sources.sampling.user_symbols import Image, UserSymbols\n"
        "symbols = UserSymbols()\n"
        "symbols.ask(1, Image('elf', sys.argv[1].encode(), (0, 0), 0), [int(sys.argv[2])], [4096])\n"
        "symbols.answers(10)\n"
        "print(*(child.process.pid for child in symbols._children.both), flush=True)\n"
        "time.sleep(1000)\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{SRC}/src"}
    command = [sys.executable, "-c", code, str(program), str(os.getpid())]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as recorder:
        assert recorder.stdout is not None
        pids = recorder.stdout.readline().split()
        assert len(pids) == 2
        recorder.kill()
    until = time.monotonic() + 120
    while left := [pid for pid in pids if _runs(pid)]:
        assert time.monotonic() < until, left
        time.sleep(0.02)


def _runs(pid: str) -> bool:
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_nothing_is_started_before_the_first_question_and_all_ends_with_close(program: Path) -> None:
    symbols = UserSymbols()
    assert (symbols._children, symbols.cpu_ns(), symbols.memory_bytes()) == (None, 0, 0)
    with running(program) as pid:
        ask(symbols, image_of(pid, "program"), pid, 0x1000)
    pids = children(symbols)
    assert symbols.cpu_ns() > 1_000_000
    assert 1 << 20 < symbols.memory_bytes() < 200 << 20
    symbols.close()
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    assert symbols.cpu_ns() > 1_000_000


def test_many_addresses_of_many_images_are_all_answered(symbols: UserSymbols) -> None:
    paths = glob.glob(os.path.join(os.path.dirname(os.__file__), "lib-dynload", "*.so"))[:40]
    for key, path in enumerate(paths, 100):
        symbols.ask(key, Image("elf", path.encode(), (0, 0), 0), [os.getpid()], range(0, 20000, 16))
    found = collected(symbols)
    ranges: dict[int, list[Function]] = {}
    for function in sorted(found, key=lambda function: function.start):
        ranges.setdefault(function.key, []).append(function)
    for key in range(100, 100 + len(paths)):
        left = set(range(0, 20000, 16))
        for function in ranges[key]:
            left.difference_update(range((function.start + 15) // 16 * 16, min(function.end, 20000), 16))
        assert left == set()
        assert all(one.end <= next_one.start for one, next_one in itertools.pairwise(ranges[key]))


def test_an_image_that_the_reader_had_to_forget_is_opened_again(symbols: UserSymbols, tmp_path: Path) -> None:
    path = tmp_path / "image"
    path.write_bytes(FIRST)
    image = Image("elf", bytes(path), (0, 0), 0)
    keys = [next(NEW_KEYS) for _ in range(260)]
    for key in keys:
        symbols.ask(key, image, [os.getpid()], [TEXT])
    found = collected(symbols)
    assert {names(found, key, TEXT)[0] for key in keys} == {"in_the_container"}
    assert not symbols._images[keys[0]].loaded
    assert symbols._images[keys[-1]].loaded
    assert ask(symbols, image, os.getpid(), TEXT + 1, key=keys[0]) == ["in_the_container"]
    path.unlink()
    assert ask(symbols, image, os.getpid(), TEXT + 2, key=keys[-1]) == ["in_the_container"]


class Unsent(UserSymbols):
    """One whose children say whatever we like: a reader that a tenant has taken over."""

    def _send(self) -> None:
        for asked in self._images.values():
            asked.sent.extend(sorted(asked.waiting))
            asked.waiting.clear()
        self._queue.clear()


KEYS = st.integers(1, 3)
REPLIES = st.builds(
    Reply,
    st.sampled_from(Told),
    KEYS,
    st.one_of(st.binary(max_size=40), st.lists(st.integers(0, 99), max_size=3).map(lambda at: _body(at))),
)


def _body(starts: list[int]) -> bytes:
    return b"".join(pack_functions([Named(start, start + 5, b"name") for start in starts]))


@given(st.lists(st.one_of(REPLIES, st.tuples(KEYS, st.lists(st.integers(0, 99), max_size=5))), max_size=30))
def test_whatever_children_say_every_address_is_answered(moves: list[Reply | tuple[int, list[int]]]) -> None:
    symbols = Unsent()
    asked: set[tuple[int, int]] = set()
    found: list[Function] = []
    for move in moves:
        if isinstance(move, Reply):
            symbols._take(move)
        else:
            symbols.ask(move[0], Image("elf", b"/bin/sh", (0, 0), 0), [1], move[1])
            asked.update((move[0], address) for address in move[1])
        found += symbols.answers()
        assert symbols.pending == sum(len(each.waiting) + len(each.sent) for each in symbols._images.values())
    for key in (1, 2, 3) * 2:
        symbols._take(Reply(Told.END, key))
        found += symbols.answers()
    assert symbols.pending == 0
    for key, address in asked:
        assert any(function.key == key and function.start <= address < function.end for function in found)
