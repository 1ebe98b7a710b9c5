"""A fleet of recordings that were really written, in a folder and behind a file system of Arrow."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.diagnosis.diagnose import diagnose_folder
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.errors import ExhumeError
from exhume.fleet import recordings, recordings_fetched, sources
from exhume.fleet.correlate_tracks import Asked, open_tracks, track_of
from exhume.fleet.model import Node
from exhume.recording.folder import Folder
from exhume.recording.recording import Recording, labels
from tests.remedy.made_proof import Made, node
from tests.render.told import write

SICK = Made(1, seconds=330, cpus=5, boot="b-sick")
WELL = Made(2, seconds=30, cpus=5, leak=0, walk_s=0, zombies=60, boot="b-well")


def named(recording: Recording, name: str) -> Recording:
    object.__setattr__(recording.node, "hostname", name)
    return recording


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("fleet")
    for zone, name, made in (("z1", "sick", SICK), ("z2", "well", WELL)):
        (root / zone).mkdir()
        write(root / zone / name, named(node(made), name))
    (root / "z2" / "broken").mkdir()
    (root / "z2" / "broken" / "recording.json").write_text("{}")
    (root / "z2" / "not-one").mkdir()
    return root


def test_every_recording_is_a_node_that_is_judged_as_diagnose_does(folder: Path) -> None:
    parts: list[float] = []
    fleet = sources.open(str(folder), progress=parts.append)
    sick, well = sorted(fleet.nodes, key=lambda each: each.name)
    assert (sick.name, sick.sick, well.name, well.sick) == ("sick", True, "well", False)
    report = diagnose_folder(Folder(str(folder / "z1" / "sick")), Thresholds())
    assert report.verdict.cause is not None
    assert sick.why == f"{report.health}: {report.verdict.cause} of {report.verdict.subject}; {sick.zombies:,.0f} zombies"
    assert sick.zombies == pytest.approx(20_033, abs=5)
    assert sick.leak_per_day == pytest.approx(6 * 1440, rel=0.1)
    assert well.leak_per_day is None  # half a minute says nothing about days
    assert sick.facts["boot-id"] == "b-sick"
    assert sick.uptime_s is not None
    assert sorted(boot.node for boot in fleet.boots) == ["sick", "well"]
    assert parts[-1] == 1.0
    assert any("z2/broken was passed over" in said for said in fleet.troubles)


def test_object_storage_is_read_by_arrow_without_the_samples(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the local file system: what S3, GCS and Azure have is reached by the same calls."""
    taken: list[str] = []
    fetched = recordings_fetched._fetched

    def watched(system: object, found: dict[str, list[tuple[str, str, int]]], scratch: str, notes: list[str]) -> object:
        taken.extend(below for files in found.values() for _, below, _ in files)
        return fetched(system, found, scratch, notes)

    monkeypatch.setattr(recordings_fetched, "_fetched", watched)
    fleet = sources.open(f"file://{folder}")
    local = sources.open(str(folder))
    assert sorted((each.name, each.zombies, each.sick) for each in fleet.nodes) == sorted(
        (each.name, each.zombies, each.sick) for each in local.nodes
    )
    assert any(name.endswith("memcg.parquet") for name in taken)
    assert any("judged without their stack samples" in said for said in fleet.troubles)
    assert not any(name.endswith(("samples.parquet", "frames.parquet", "stacks.parquet")) for name in taken)


def test_nothing_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ExhumeError, match="there is no recording in"):
        sources.open(str(tmp_path))
    with pytest.raises(ExhumeError, match="there is no recording in"):
        sources.open(f"file://{tmp_path}")
    with pytest.raises(ExhumeError, match="cannot be listed"):
        sources.open(f"file://{tmp_path}/nowhere")
    shutil.rmtree(tmp_path)


@given(st.lists(st.text(st.sampled_from("a./20261116T012600Z-recordingjson"), max_size=40), max_size=12))
def test_no_name_in_a_bucket_leads_out_of_the_recording(paths: list[str]) -> None:
    chapter, segment = "20261116T012600Z", "0000012345678-0000012405678"
    files = [("b/x/recording.json", 1), (f"b/x/{chapter}/{segment}/memcg.parquet", 1)] + [(f"b/x/{each}", 1) for each in paths]
    files += [(f"b/x/../{chapter}/chapter.json", 1), (f"b/x/{chapter}/../../passwd", 1), (f"b/x/{chapter}/{segment}/../e", 1)]
    found = recordings_fetched.grouped(files, "b")
    belows = {below for group in found.values() for _, below, _ in group}
    assert {"recording.json", f"{chapter}/{segment}/memcg.parquet"} <= belows
    assert not any(part in ("", ".", "..") for below in belows for part in below.split("/"))


def test_one_boot_under_two_names_is_one_node_and_one_name_at_once_is_two() -> None:
    day = 86_400 * 10**9

    def seen(end: int, name: str, boot: str, up_s: float, where: str) -> tuple[int, Node, str]:
        return end, Node(name, {"boot-id": boot}, uptime_s=up_s), where

    kept, said = recordings._distinct([seen(1 * day, "old", "b1", 10, "x"), seen(2 * day, "new", "b1", 86_410, "y")])
    assert [name for _, name in kept] == ["new"]
    assert "old is new now" in said[0]
    kept, said = recordings._distinct([seen(2 * day, "n", "b1", 86_400, "x"), seen(2 * day, "n", "b2", 86_400, "y")])
    assert sorted(name for _, name in kept) in (["n", "n (x)"], ["n", "n (y)"])
    assert "2 nodes are called n at the same time" in said[0]
    kept, said = recordings._distinct([seen(1 * day, "n", "b1", 10, "x"), seen(3 * day, "n", "b2", 86_400, "y")])
    assert [(node.facts["boot-id"], name) for node, name in kept] == [("b2", "n")]
    assert "earlier recordings of it were passed over" in said[0]


def test_throttling_and_reclaim_of_a_recording_are_put_where_they_grew(folder: Path, tmp_path: Path) -> None:
    recording = node(replace(WELL, seconds=300))
    begin = recording.window[0]
    second = 10**9
    for at in range(0, 300, 10):
        burst = 100 <= at < 200
        recording.count(begin + at * second, "vmstat_pgscan_direct", 50_000 * max(0, min(at, 200) - 100), ())
        recording.count(begin + at * second, "cpu_throttled_ns", second * max(0, min(at, 200) - 100), labels(cgroup="/a"))
        recording.count(begin + at * second, "cpu_throttled_ns", 7 * second, labels(cgroup=f"/b{burst}"))
    track = track_of("n", recording, recording.window, 10.0)
    grown = np.flatnonzero(track.throttled_s)
    assert (grown.min(), grown.max(), track.throttled_s.sum()) == (11, 20, 100)
    assert track.reclaimed[15] == 50_000
    write(tmp_path / "r", recording)
    tracks = open_tracks(str(tmp_path), Asked(86_400, 60))
    assert tracks.step_s == 1.0
    assert tracks.tracks[0].throttled_s.sum() == pytest.approx(100)
    assert np.isnan(open_tracks(str(folder), Asked(86_400, 60)).tracks[0].throttled_s).all()
