"""What an upgrade finds: a recording of this version opens, goes on in the same place, and a newer one is left alone."""

import json
from pathlib import Path

import pytest

from exhume.cli.main import main
from exhume.errors import ExhumeError
from exhume.recording import layout
from exhume.recording.recording import Node, Recording
from exhume.recording.schema import VERSION
from exhume.recording.writer import Writer

NODE = Node("node", "boot", "6.1", "v2", 2)


def write(path: Path, second: int) -> None:
    writer = Writer(str(path), NODE, {"hz": 0}, budget_bytes=16 << 20)
    rows = Recording(NODE)
    rows["anchors"].add(second * 10**9, second * 10**9, second * 10**9, 10**18 + second * 10**9, 1000)
    rows["cpu"].add(second * 10**9, 0, *range(10))
    writer.append(rows)
    writer.close()


def test_a_recording_goes_on_in_the_same_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "recording"
    write(folder, 1)
    before = {path.relative_to(folder) for path in folder.rglob("*.parquet")}
    write(folder, 100)
    assert before
    assert before < {path.relative_to(folder) for path in folder.rglob("*.parquet")}
    assert main(["info", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


def test_the_mark_says_the_version_and_nothing_else_is_needed_to_know_it(tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    write(folder, 1)
    assert json.loads((folder / layout.MARK).read_text())["schema"].endswith(f"/{VERSION}")


def test_a_newer_recording_is_refused_by_a_sentence_and_not_touched(tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    write(folder, 1)
    mark = folder / layout.MARK
    mark.write_text(mark.read_text().replace(f"/{VERSION}", f"/{VERSION + 1}"))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(ExhumeError, match="newer exhume"):
        write(folder, 100)
    assert main(["info", str(folder)]) != 0
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_the_chart_keeps_the_state_on_the_node_and_not_in_the_pod() -> None:
    from tests.deploy import helm

    volumes = {one["name"]: one for one in helm.pod()["volumes"]}
    assert volumes["state"]["hostPath"] == {"path": "/var/lib/exhume", "type": "DirectoryOrCreate"}
