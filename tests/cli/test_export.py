"""exhume export on recordings that were really written: files, pipes, terminals, tables, damage."""

import csv
import io
import json
import os
import pty
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings

from exhume.cli.export import FORMATS
from exhume.cli.main import main
from exhume.recording.folder import Folder
from exhume.recording.recording import Recording
from exhume.recording.schema import TABLES
from exhume.recording.writer import Writer
from tests.examples import examples
from tests.recorders import exhume, recorder
from tests.recording import made
from tests.render.made import BEGIN, SECOND, Ran, write


@pytest.fixture(autouse=True)
def zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")


def query(text: str) -> list[tuple[Any, ...]]:
    found = duckdb.sql(text)
    assert found is not None
    return found.fetchall()


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("export") / "recording")


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_and_a_pipe_have_the_same_bytes(
    kind: str, recording: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    file = tmp_path / "out"
    assert main(["export", recording, "--format", kind, "-o", str(file)]) == 0
    told = capfdbinary.readouterr()
    assert told.out == b""
    assert b"out: 4,800 " in told.err
    assert main(["export", recording, "--format", kind]) == 0
    assert capfdbinary.readouterr().out == file.read_bytes()
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("kind", ["pprof", "perfetto", "parquet"])
def test_a_terminal_is_spared(kind: str, recording: str) -> None:
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "exhume", "export", recording, "--format", kind],
            stdout=theirs,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 64
    assert b"is not for a terminal: name a file with -o" in done.stderr


@pytest.mark.parametrize("table", sorted(set(TABLES)))
def test_csv_and_parquet_have_the_rows_of_any_table(table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made.write(tmp_path / "recording", 12)
    path = str(tmp_path / "recording")
    assert main(["export", path, "--format", "csv", "--table", table]) == 0
    lines = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert lines[0] == [column.name for column in TABLES[table].columns]
    assert main(["export", path, "--format", "parquet", "--table", table, "-o", str(tmp_path / "t.parquet")]) == 0
    rows = query(f"select * from '{tmp_path}/t.parquet'")
    plain = [[json.dumps(one, separators=(",", ":")) if isinstance(one, list) else str(one) for one in row] for row in rows]
    assert plain == lines[1:]
    held = [
        row
        for name in sorted(
            tmp_path.glob(f"recording/*/{'' if table in ('stacks', 'frames', 'threads') else '*/'}{table}.parquet")
        )
        for row in query(f"select * from '{name}'")
    ]
    assert sorted(map(str, rows)) == sorted(map(str, held))
    assert bool(rows) == (
        table in {"cpu", "samples", "stacks", "frames", "threads", "summary", "counters", "events", "sources", "anchors"}
    )


def test_ids_lead_from_table_to_table(recording: str, tmp_path: Path) -> None:
    for table in ("samples", "stacks", "frames"):
        assert (
            main(["export", recording, "--format", "parquet", "--table", table, "-o", str(tmp_path / f"{table}.parquet")]) == 0
        )
    hot = query(
        f"select f.name, count(*) from '{tmp_path}/samples.parquet' s join '{tmp_path}/stacks.parquet' k on k.id = s.stack "
        f"join '{tmp_path}/frames.parquet' f on f.id = k.frames[-1] where k.class <> 'idle' group by all order by 2 desc"
    )
    assert hot == [("mem_cgroup_nr_lru_pages", 300), ("main", 240)]


def test_a_table_knows_the_filters_that_it_has_columns_for(recording: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["export", recording, "--format", "csv", "--table", "threads", "--comm", "kube"])
    assert [row["pid"] for row in csv.DictReader(io.StringIO(capsys.readouterr().out))] == ["4242"]
    main(["export", recording, "--format", "csv", "--table", "summary", "--cpu", "3", "--from", "+5s", "--for", "1s"])
    assert [(row["core"], row["system"]) for row in csv.DictReader(io.StringIO(capsys.readouterr().out))] == [("3", "100")]
    assert main(["export", recording, "--format", "csv", "--table", "counters", "--comm", "kube"]) == 64
    assert "--comm says nothing about the table counters" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--format", "pprof", "--comm", "nobody"], 3, "no samples that --comm would let through between"),
        (["--format", "folded", "--cpu", "0", "--no-idle"], 3, "idle ones"),
        (["--format", "pprof", "--cpu", "0", "--no-idle"], 3, "idle ones"),
        (["--format", "speedscope", "--cpu", "0", "--no-idle"], 3, "idle ones"),
        (["--format", "firefox", "--cpu", "0", "--no-idle"], 3, "idle ones"),
        (["--format", "pprof", "--table", "cpu"], 64, "--table is for csv and parquet"),
        (["--format", "csv", "--table", "nothing"], 64, "there is no table 'nothing': there are cpu, samples"),
        (["--format", "pprof", "--by", "core"], 64, "--by core is nothing for pprof"),
        (["--format", "speedscope", "--by", "thread"], 64, "speedscope has core, process"),
        (["--format", "csv", "--table", "frames", "--from", "+1s"], 64, "a window (--from, --to, --at, --for) says nothing"),
        (["--format", "folded", "-o", "/no/such/place"], 3, "could not be written"),
    ],
)
def test_what_cannot_be_is_a_sentence(
    options: list[str], code: int, says: str, recording: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", recording, *options]) == code
    told = capsys.readouterr()
    assert says in told.err
    assert told.err.count("\n") == 1
    assert told.out == ""


def test_a_file_that_was_there_stays_until_the_new_one_is_whole(
    recording: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from exhume.recording import table_files

    file = tmp_path / "out.csv"
    file.write_text("before")

    def breaks(out: Any, table: str, pieces: Any) -> int:
        out(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(table_files, "write_csv", breaks)
    assert main(["export", recording, "--format", "csv", "-o", str(file)]) == 3
    assert file.read_text() == "before"
    assert os.listdir(tmp_path) == ["out.csv"]


def test_what_is_no_file_is_written_into(recording: str) -> None:
    assert main(["export", recording, "--format", "csv", "-o", "/dev/null"]) == 0
    assert not os.path.isfile("/dev/null")


def test_folded_by_core_and_as_flame_has_it(recording: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["export", recording, "--format", "folded", "--by", "core", "--no-idle"])
    assert capsys.readouterr().out.splitlines() == [
        "core 1;sshd;main 240",
        "core 3;kubelet;main;read_[k];mem_cgroup_nr_lru_pages_[k] 300",
    ]
    main(["export", recording, "--format", "folded"])
    exported = capsys.readouterr().out
    main(["flame", recording, "--folded"])
    assert capsys.readouterr().out == exported


def test_more_samples_than_order_can_be_kept_for_are_counted(
    recording: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from exhume.cli import export
    from exhume.exports import firefox

    monkeypatch.setattr(export, "MOST_IN_ORDER", 1000)
    assert main(["export", recording, "--format", "speedscope", "-o", str(tmp_path / "x.json")]) == 0
    assert "4,800 samples, counted, not in order of time" in capsys.readouterr().err
    document = json.loads((tmp_path / "x.json").read_text())
    assert sum(profile["endValue"] for profile in document["profiles"]) == 4800 * 10_000_000
    monkeypatch.setattr(firefox, "MOST", 1000)
    assert main(["export", recording, "--format", "firefox"]) == 64
    assert "4,800 samples are more than the page opens" in capsys.readouterr().err


def test_what_is_missing_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "recording")
    damaged = sorted(Path(path).glob("*/*/samples.parquet"))[0]
    damaged.write_bytes(damaged.read_bytes()[:100])
    assert main(["export", path, "--format", "csv"]) == 0
    told = capsys.readouterr()
    assert 0 < len(told.out.splitlines()) - 1 < 4800
    assert "the recording is not whole; exhume info" in told.err


@pytest.mark.ci
def test_one_that_is_being_written_can_be_exported(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("recording needs root")
    with recorder(tmp_path / "recording", "--hz", "97", segment_s=1) as it:
        it.begun()
        for _ in range(4):
            it.until_said("recording to")
            for kind in ("csv", "perfetto", "pprof"):
                done = exhume("export", it.path, "--format", kind, "-o", tmp_path / kind)
                assert done.returncode in (0, 3), done.stderr
                assert b"a bug" not in done.stderr
    done = exhume("export", it.path, "--format", "csv", "--table", "anchors")
    assert done.returncode == 0, done.stderr
    times = [line.split(b",")[0] for line in done.stdout.splitlines()[1:]]
    assert len(times) == len(set(times)) > 0


def test_hostile_names_reach_no_terminal_as_folded_stacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def does(second: int, core: int, tick: int) -> Ran:
        return Ran(core, "\x1b[2J\x1b]0;owned\x07", "x:a\x1b[31m;b k:<script>", 1)

    folder = write(tmp_path / "recording", 1, does)
    for kind in ("folded", "speedscope", "firefox"):
        assert main(["export", folder, "--format", kind]) == 0
        assert all(character == "\n" or character.isprintable() for character in capsys.readouterr().out)


@settings(max_examples=examples(25), suppress_health_check=list(HealthCheck))
@given(rows=made.recordings())
def test_any_rows_at_all_are_exported_or_refused_with_a_sentence(rows: Recording, capfd: pytest.CaptureFixture[str]) -> None:
    with tempfile.TemporaryDirectory() as place:
        writer = Writer(f"{place}/r", made.NODE, made.ABOUT, budget_bytes=1 << 30)
        writer.append(rows)
        writer.close()
        try:
            Folder(f"{place}/r")
        except Exception:
            return
        for kind in FORMATS:
            assert main(["export", f"{place}/r", "--format", kind, "-o", f"{place}/out"]) in (0, 3, 64)
            assert "a bug" not in capfd.readouterr().err


def test_pieces_give_every_row_once(recording: str) -> None:
    folder = Folder(recording)
    assert sum(len(rows["time"]) for _, rows in folder.pieces("samples")) == 4800
    assert sum(len(rows["time"]) for _, rows in folder.pieces("samples", BEGIN + SECOND, BEGIN + 3 * SECOND)) == 800


@pytest.mark.ci
def test_a_perf_data_file_needs_no_step_between(tmp_path: Path) -> None:
    """Every sample that perf itself lists is in flame, heat, info and each export."""
    if shutil.which("perf") is None or os.geteuid() != 0:
        pytest.skip("needs perf and root")
    file = str(tmp_path / "perf.data")
    busy = [sys.executable, "-c", "sum(i * i for i in range(3_000_000))"]
    done = subprocess.run(
        ["perf", "record", "-q", "-e", "cpu-clock", "-F", "999", "-g", "-o", file, "--", *busy],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"perf cannot record here: {done.stderr.decode(errors='replace')[:100]}")
    listed = subprocess.run(["perf", "script", "-i", file, "-F", "pid"], capture_output=True, text=True, check=True).stdout
    samples = sum(1 for line in listed.splitlines() if line.strip())
    assert samples > 10
    folded = exhume("export", file, "--no-symbols", "--format", "folded")
    assert sum(int(line.rsplit(b" ", 1)[1]) for line in folded.stdout.splitlines()) == samples
    assert json.loads(exhume("flame", file, "--no-symbols", "--json").stdout)["samples"] == samples
    assert json.loads(exhume("info", file, "--no-symbols", "--json").stdout)["samples"]["count"] == samples
    heat = json.loads(exhume("heat", file, "--no-symbols", "--json").stdout)
    assert sum(sum(core[kind]) for core in heat["cores"] for kind in ("idle", "user", "system", "softirq", "irq")) == samples
    for kind in FORMATS:
        done = exhume("export", file, "--no-symbols", "--format", kind, "-o", tmp_path / kind)
        assert f"{samples:,} " in done.stderr.decode(), kind


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
@pytest.mark.parametrize(("form", "full"), [("csv", False), ("pprof", True), ("folded", True)])
def test_a_disk_that_is_full_is_told_even_without_buffers(recording: str, tmp_path: Path, form: str, full: bool) -> None:
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "exhume-test", place], check=True)
    try:
        with open(place / "x", "wb") as file:
            command = [sys.executable, "-u", "-m", "exhume", "export", recording, "--format", form]
            if full:
                (place / "filler").write_bytes(b"x" * 4096)
            done = subprocess.run(command, stdout=file, stderr=subprocess.PIPE, check=False)
        assert done.returncode == 3
        assert b"No space left" in done.stderr
    finally:
        subprocess.run(["umount", place], check=True)


def test_the_summary_of_what_is_not_sealed_yet_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, part = tmp_path / "whole", tmp_path / "open"
    made.write(whole, 25)
    store = made.writer(part)
    for at in range(25):
        store.append(made.second(at, names=at == 0))
    store.settle()
    assert [segment.sealed for segment in Folder(str(part)).segments] == [True, True, False]
    told = []
    for place in (whole, part):
        assert main(["export", str(place), "--format", "csv", "--table", "summary"]) == 0
        told.append(capsys.readouterr().out)
        assert main(["export", str(place), "--format", "parquet", "--table", "summary", "-o", str(tmp_path / "t.parquet")]) == 0
        assert query(f"select sum(idle + \"user\" + system + softirq + irq) from '{tmp_path}/t.parquet'") == [
            (25 * made.SAMPLES,)
        ]
    store.close()
    assert told[0] == told[1]
