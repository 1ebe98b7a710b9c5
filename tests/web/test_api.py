"""Each question of the page, of a recording of which everything is known."""

import csv
import gzip
import json
import threading
from pathlib import Path

import numpy as np
import pytest

from exhume.diagnosis.findings.core_facts import CoreSaturated
from exhume.diagnosis.findings.model import Finding, Span
from exhume.recording.folder import Folder
from exhume.recording.recording import Node
from exhume.web.described import Shown, described
from exhume.web.incidents import Incidents
from exhume.web.store import Store
from exhume.web.view import View
from tests.diagnosis.findings.facts import facts
from tests.render.made import BEGIN, HZ, REAL, SECOND, Ran, idle, write
from tests.waiting import wait_for
from tests.web.serving import Browser, browser, decoded, view

HELD = {"from_": BEGIN + 5 * SECOND, "to": BEGIN + 8 * SECOND}
US = 1_000_000


def test_about_says_what_is_shown(user: Browser) -> None:
    about = user.api("about")
    assert about["node"] == {"hostname": "node-7", "boot_id": "boot-1", "cgroups": "v1", "cpus": 4}
    assert (about["name"], about["kernel"], about["cores"]) == ("recording", "6.18.0", [0, 1, 2, 3])
    assert int(about["start_ns"]) == BEGIN
    assert about["duration_us"] == pytest.approx(12 * US, abs=20_000)
    assert about["real_start_ms"] == REAL / 1e6
    assert (about["has_wall"], about["live"], about["hz"]) == (True, False, HZ)
    assert (about["samples"], about["sampled"], about["ready"]) == (12 * 4 * HZ, True, 1.0)
    assert about["initial"] is None


def test_the_first_answer_is_what_is_shown_and_its_heat_map(user: Browser) -> None:
    about = user.api("about")
    heat = user.api("heat", from_=BEGIN, to=BEGIN + 1_000 * about["duration_us"])
    assert user.api("first") == {"about": about, "heat": heat}
    assert heat["most"] > 0


def test_what_was_asked_for_at_the_command_line_is_told(recorded: str) -> None:
    store = Store(Folder(recorded), "x")
    shown = View(store, (BEGIN + SECOND, BEGIN + 2 * SECOND), Incidents(store, lambda *_: []))
    assert browser(shown).api("about")["initial"] == {"from": US, "to": 2 * US}


def test_the_overview_shows_the_worst_core_and_the_mean(user: Browser) -> None:
    overview = user.api("overview", columns=12)
    kernel = [round(share, 1) for share in overview["kernel"]]
    assert (kernel[:5], kernel[5:8], kernel[9:]) == ([0] * 5, [1] * 3, [0] * 3)  # the eighth column shares a second with both
    assert overview["busy"][0] == pytest.approx(0.05, abs=0.001)  # core 1 for a fifth of each second, of four cores
    assert overview["busy"][6] == pytest.approx(0.3, abs=0.001)
    assert overview["zombies"] == [None] * 12
    assert overview["incidents"] == []


def test_lanes_have_the_odd_core_first(user: Browser) -> None:
    lanes = user.api("lanes", columns=12)
    assert lanes["source"] == "samples"
    assert [core["core"] for core in lanes["cores"]][:2] == [3, 1]
    odd = lanes["cores"][0]
    assert (decoded(odd["system"]) > 200).tolist() == [5 <= second < 8 for second in range(12)]
    assert decoded(lanes["cores"][1]["user"]).tolist() == pytest.approx([51] * 12, abs=2)
    assert len(user.api("lanes", columns=12, cores="odd")["cores"]) == 4


def test_beyond_its_ends_lanes_know_nothing(user: Browser) -> None:
    lanes = user.api("lanes", columns=4, from_=BEGIN - 12 * SECOND, to=BEGIN + 12 * SECOND)
    assert (lanes["from"], lanes["to"]) == (-12 * US, 12 * US)
    assert (decoded(lanes["cores"][0]["system"]) == 255).tolist() == [True, True, False, False]


def test_the_heat_map_has_a_column_a_second_of_the_wall_clock(user: Browser) -> None:
    heat = user.api("heat")
    cells = decoded(heat["cells"]).reshape(heat["columns"], 50)
    assert heat["start"] == -250_000  # the recording began a quarter of a second after a whole one
    assert (heat["seconds"], heat["columns"], heat["rows"], heat["seconds_per_column"]) == (13, 13, 50, 1)
    # sshd has core 1 for the first fifth of each second of the recording, which begin a quarter after those of the wall.
    assert (cells[2] > 0).tolist() == [12 <= row < 22 for row in range(50)]
    assert cells.sum(axis=1)[6:8].min() > 3 * cells.sum(axis=1)[2]
    assert heat["most"] == 4
    assert not np.unpackbits(decoded(heat["unknown"]), bitorder="little")[:12].any()


def test_a_heat_map_of_less_counts_less(user: Browser) -> None:
    def sums(**query: object) -> list[int]:
        heat = user.api("heat", **query)
        cells = decoded(heat["cells"]).reshape(-1, 50).astype(float) * heat["most"] / 255
        return [round(total) for total in cells.sum(axis=1).tolist()]

    held = 3 * HZ
    assert sum(sums()) == pytest.approx(held + 12 * 20, abs=3)
    assert sum(sums(cores="3")) == sum(sums(comm="^kube")) == sum(sums(pid="4242")) == sum(sums(cgroup="kubelet")) == held
    assert sum(sums(cores="0-1")) == sum(sums(comm="sshd")) == 12 * 20
    assert sum(sums(symbol="mem_cgroup_nr")) == sum(sums(symbol="read$", cores="3")) == held
    assert sum(sums(symbol="nr_lru", comm="sshd")) == sum(sums(comm="nobody")) == sum(sums(symbol="nothing")) == 0


def test_a_short_window_is_the_same_before_the_outline_is_read(
    recorded: str, user: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    early = browser(view(recorded, ready=False))
    assert early.api("heat", **HELD) == user.api("heat", **HELD)
    for piece in (600, 2):
        monkeypatch.setattr("exhume.web.heat._PIECE_S", piece)
        assert early.api("heat", symbol="read") == user.api("heat", symbol="read")
    overview = early.api("overview", columns=2)
    assert (overview["kernel"], overview["ready"]) == ([None, None], 0.0)


def test_a_flame_graph_is_a_tree_in_columns(user: Browser) -> None:
    flame = user.api("flame", **HELD, cores="3")
    names = [flame["names"][name] for name in flame["name"]]
    assert names == ["kubelet", "main", "read", "mem_cgroup_nr_lru_pages"]
    assert flame["depth"] == [0, 1, 2, 3]
    assert flame["kind"] == "gukk"
    assert flame["value"] == [3 * HZ] * 4
    assert (flame["total"], flame["base_total"], flame["base"], flame["idle"]) == (3 * HZ, 0, [0] * 4, 0)
    assert [flame["modules"][module] for module in flame["module"]] == ["", "/usr/bin/kubelet", "[kernel]", "[kernel]"]


def test_cores_may_be_picked_in_any_order(user: Browser) -> None:
    assert user.api("flame", cores="3,1") == user.api("flame", cores="1,3")


def test_idle_is_one_frame_or_none(user: Browser) -> None:
    with_idle, without = user.api("flame"), user.api("flame", idle=0)
    assert with_idle["total"] == 12 * 4 * HZ
    assert with_idle["idle"] == with_idle["value"][with_idle["kind"].index("i")] == with_idle["total"] - without["total"]
    assert "i" not in without["kind"]


@pytest.mark.parametrize(
    ("by", "first"),
    [
        ("process", ["kubelet", "sshd"]),
        ("thread", ["kubelet 4242", "sshd 77"]),
        ("core", ["core 1", "core 3"]),
        ("cgroup", ["/system.slice/kubelet.service", "/system.slice/ssh.service"]),
        ("none", ["main"]),
    ],
)
def test_stacks_are_grouped(user: Browser, by: str, first: list[str]) -> None:
    flame = user.api("flame", by=by, idle=0)
    tops = [flame["names"][name] for name, depth in zip(flame["name"], flame["depth"], strict=True) if depth == 0]
    assert list(dict.fromkeys(tops)) == first


def test_reversed_it_begins_at_what_ran(user: Browser) -> None:
    flame = user.api("flame", **HELD, cores="3", reverse=1, by="none")
    assert [flame["names"][name] for name in flame["name"]] == ["mem_cgroup_nr_lru_pages", "read", "main"]


def test_a_differential_has_frames_of_either_side(user: Browser) -> None:
    quiet = {"base_from": BEGIN, "base_to": BEGIN + 3 * SECOND}
    flame = user.api("flame", **HELD, **quiet, idle=0)
    rows = {
        flame["names"][name]: (value, base)
        for name, value, base in zip(flame["name"], flame["value"], flame["base"], strict=True)
    }
    assert rows["kubelet"] == (3 * HZ, 0)
    assert rows["sshd"] == (60, 60)
    assert (flame["total"], flame["base_total"]) == (3 * HZ + 60, 60)
    assert flame["baseline"] == {"from": 0, "to": 3 * US, "how": "chosen"}
    turned = user.api("flame", from_=BEGIN, to=BEGIN + 3 * SECOND, base_from=HELD["from_"], base_to=HELD["to"], idle=0)
    at = turned["name"].index(turned["names"].index("kubelet"))
    assert (turned["value"][at], turned["base"][at]) == (0, 3 * HZ)


def test_the_baseline_is_found(user: Browser) -> None:
    baseline = user.api("flame", from_=BEGIN + 6 * SECOND, to=BEGIN + 7 * SECOND, cores="3", base="auto")["baseline"]
    assert baseline["to"] - baseline["from"] == US
    assert baseline["to"] <= 5.3 * US or baseline["from"] >= 7.7 * US  # the core may be held for less than a third of it


def test_the_verdict_is_the_report_with_spans_and_displayed_evidence(user: Browser) -> None:
    verdict = user.api("verdict", from_=BEGIN, to=BEGIN + 12 * SECOND)
    assert verdict["schema"] == "exhume.report/2"
    assert verdict["judged"] == {"from": 0, "to": pytest.approx(12 * US, abs=20_000)}
    saturated = [finding for finding in verdict["findings"] if finding["kind"] == "core-saturated"]
    spans = [span for finding in saturated for span in finding["spans"]]
    assert any(core == 3 and 4 * US < start < 6 * US and 7 * US < end < 9 * US for start, end, core in spans)
    (one,) = [finding for finding in saturated if finding["facts"]["core"] == 3]
    longest_ms = one["facts"]["longest_ms"]
    (longest,) = [each for each in one["evidence"] if each["what"] == "longest"]
    assert (longest["value"], longest["unit"], longest["text"]) == (longest_ms, "ms", f"{longest_ms:,} ms")
    assert longest["source"]


def test_of_very_many_spans_the_longest_are_told() -> None:
    from exhume.web.judging import MOST_SPANS, _when

    spans = tuple(Span(0, at * 10_000, at * 10_000 + 1_000 * (1 + at % 7)) for at in range(3 * MOST_SPANS))
    told = _when(Finding(facts(CoreSaturated), "warning", 0, 1, spans), 0)["spans"]
    assert len(told) == MOST_SPANS
    assert told == sorted(told)
    assert min(end - start for start, end, _ in told) >= 4


@pytest.mark.parametrize("form", ["folded", "pprof", "speedscope", "perfetto", "firefox", "csv"])
def test_a_selection_is_exported(user: Browser, form: str) -> None:
    answer = user.get("/api/export", {"format": form, "from": HELD["from_"], "to": HELD["to"], "cores": 3})
    assert answer.status == 200
    assert answer.headers["content-disposition"].startswith('attachment; filename="exhume-5s.')
    if form == "folded":
        assert answer.content == b"kubelet;main;read_[k];mem_cgroup_nr_lru_pages_[k] 300\n"
    elif form == "pprof":
        assert b"mem_cgroup_nr_lru_pages" in gzip.decompress(answer.content)
    elif form in ("speedscope", "firefox"):
        assert "mem_cgroup_nr_lru_pages" in json.dumps(json.loads(answer.content))
    elif form == "csv":
        assert len(answer.content.splitlines()) == 1 + 3 * HZ
        assert answer.content.splitlines()[1].decode() == (
            f"{HELD['from_']},3,4242,4242,kubelet,/system.slice/kubelet.service,system,mem_cgroup_nr_lru_pages_[k],"
            "main;read_[k];mem_cgroup_nr_lru_pages_[k]"
        )
    else:
        assert b"mem_cgroup_nr_lru_pages" in answer.content


def test_a_download_tells_its_length_and_comes_in_parts(user: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.web.exports._PART_BYTES", 100)
    whole = user.get("/api/export", {"format": "csv"})
    head = user.ask("HEAD", "/api/export", {"format": "csv"})
    assert (head.status, head.content) == (200, b"")
    assert head.headers["content-length"] == whole.headers["content-length"] == str(len(whole.content))


def test_a_name_is_no_formula_in_a_spreadsheet(tmp_path: Path) -> None:
    def does(second: int, core: int, tick: int) -> Ran:
        return Ran(core, "=1+1", 'k:@SUM(1) k:-a,"b', 1, "system", 100, "/a") if core == 0 else idle(core, 1)

    answer = browser(view(write(tmp_path / "recording", 1, does))).get("/api/export", {"format": "csv", "cores": 0})
    (row, *_) = csv.reader(answer.content.decode().splitlines()[1:])
    assert row[4:] == ["'=1+1", "/a", "system", "'-a,\"b_[k]", "'@SUM(1)_[k];-a,\"b_[k]"]


def test_incidents_come_when_they_are_found(recorded: str) -> None:
    store, go = Store(Folder(recorded), "x"), threading.Event()
    incident = {"start": 1, "end": 2, "health": "critical", "cause": None, "subject": "", "summary": "<b>"}

    def judge(*_: object) -> list[dict[str, object]]:
        assert go.wait(120)
        return [incident]

    incidents = Incidents(store, judge)
    shown = View(store, None, incidents)
    someone = browser(shown)
    shown.start()
    try:
        assert (someone.api("overview")["incidents_ready"], someone.api("overview")["incidents"]) == (False, [])
        go.set()
        wait_for(lambda: someone.api("about")["incidents_ready"])
        assert someone.api("overview")["incidents"] == [incident]
    finally:
        shown.stop()


def test_incidents_are_judged_in_a_process_of_its_own(recorded: str) -> None:
    store = Store(Folder(recorded), "x")
    found = Incidents(store)._in_child(store, *store.window(store.folder))
    assert found is not None
    assert all(set(one) == {"start", "end", "health", "cause", "subject", "summary", "judged"} for one in found)


HOSTILE = (
    "<script>alert(1)</script>",
    "</script>",
    "\x1b[31m",
    '"; drop',
    "a\ud800b",
    "‮",
    "\x00",
    "x" * 5000,
    "../../etc",
    "%s",
)


def test_hostile_names_are_data(tmp_path: Path) -> None:
    """Stack words are apart by spaces, so that names here have none; half a surrogate cannot be stored at all."""
    names = [name.replace(" ", "_") for name in HOSTILE if not any("\ud800" <= char <= "\udfff" for char in name)]

    def does(second: int, core: int, tick: int) -> Ran:
        name = names[tick % len(names)]
        return Ran(core, name, f"k:{name}", 1, "system", 100 + tick % len(names), f"/{name}") if core == 0 else idle(core, 1)

    someone = browser(view(write(tmp_path / "recording", 2, does)))
    answer = someone.get("/api/flame", {"by": "cgroup", "idle": 0})
    assert answer.headers["content-type"] == "application/json"
    assert answer.content.isascii()
    flame = answer.json()
    assert set(names) <= set(flame["names"])
    assert {f"/{name}" for name in names} <= set(flame["names"])
    assert someone.get("/api/verdict").status == 200
    for form in ("folded", "csv", "speedscope", "firefox", "pprof", "perfetto"):
        assert someone.get("/api/export", {"format": form}).status == 200


@pytest.mark.parametrize("cpus", [1 << 60, -5])
def test_as_many_cores_as_a_file_says_are_not_listed(cpus: int) -> None:
    shown = Shown("x", Node("n", "b", "6", "v2", cpus), [3], 0, 0, 10**9, 0, False, 0, None, False, ["b"], [])
    cores = described(shown)["cores"]
    assert 3 in cores
    assert len(cores) <= 8192
