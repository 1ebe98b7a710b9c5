"""Where zombies come from: the place that has most of them, and how probable it is that it leaks."""

from hypothesis import given
from hypothesis import strategies as st

from exhume.diagnosis.findings import memcg_leak
from exhume.diagnosis.findings.leak_probability import leak
from exhume.diagnosis.findings.memcg_leak import MemcgLeak
from exhume.diagnosis.findings.model import of
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.recording.recording import Recording
from tests.diagnosis.findings import made

T = Thresholds()


def walked(groups: dict[str, int], live: int = 100, method: str = "bpf-walk", **owner: str) -> Recording:
    recording = made.recording()
    for path, zombies in groups.items():
        recording["memcg_walk"].add(
            1, path, path, "/system.slice", zombies, 3, zombies * 4096, 0, 0, 0,
            owner.get("unit", "") if path != "/x" else "", owner.get("pod", ""), "", "", 95, "its path", method,
            0, 0, 0, "", "",
        )  # fmt: skip
    recording.count(1, "memcg_walk_live", live)
    recording.count(1, "memcg_walk_zombies", sum(groups.values()))
    return recording


def test_the_place_with_nearly_all_of_them_is_the_leak_and_its_unit_is_named() -> None:
    recording = walked({"/system.slice/ecs.service": 68_000, "/x": 400}, unit="ecs.service")
    (finding,) = of(memcg_leak.detect(recording, T).findings, MemcgLeak)
    assert finding.subject == "ecs.service"
    assert "68,000 of 68,400 zombies lived in /system.slice/ecs.service, pinned by page cache" in finding.summary
    assert finding.facts.share_ratio > 0.99


def test_without_an_owner_the_place_is_the_subject() -> None:
    (finding,) = memcg_leak.detect(walked({"/agents/run-*": 5_000}), T).findings
    assert finding.subject == "/agents/run-*"


def test_few_zombies_and_many_small_places_accuse_nobody() -> None:
    assert memcg_leak.detect(walked({"/a": 900}), T).ruled_out
    small = memcg_leak.detect(walked({f"/p{i}": 500 for i in range(10)}), T).findings
    assert {finding.severity for finding in small} == {"info"}
    assert memcg_leak.detect(walked({f"/p{i}": 90 for i in range(30)}), T).ruled_out
    assert memcg_leak.detect(walked({"/a": 5_000}, live=4_000), T).ruled_out
    assert memcg_leak.detect(made.recording(on=()), T).unseen


def test_a_bare_count_does_not_rule_out_a_leak_but_says_what_it_could_not_see() -> None:
    examined = memcg_leak.detect(walked({"/*": 50_000}, method="count"), T)
    assert (examined.findings, examined.ruled_out) == ((), "")
    assert examined.unseen.startswith("where they lived is not visible: ")


def test_a_probability_comes_with_its_derivation() -> None:
    judged = leak(1_000, siblings=3, baseline=50)
    assert judged.probability == 1_000 / 1_050
    assert judged.because == "1,000 zombies where 50 would not be odd"


def test_what_was_seen_live_outweighs_a_small_count() -> None:
    assert leak(10, 0, 50, removed=40, unreleased=40).probability > 0.95
    assert leak(10, 0, 50, removed=1, unreleased=1).probability < 0.8
    assert leak(1_000, 0, 50, removed=50, unreleased=0).probability < 0.1


@given(st.integers(0, 10**6), st.integers(0, 10**5), st.integers(0, 10**4), st.integers(0, 1000), st.data())
def test_a_probability_is_one_and_grows_with_the_zombies(
    zombies: int, siblings: int, baseline: int, removed: int, data: st.DataObject
) -> None:
    unreleased = data.draw(st.integers(0, removed))
    judged = leak(zombies, siblings, baseline, removed, unreleased)
    assert 0.0 <= judged.probability <= 1.0
    assert leak(zombies + 100, siblings, baseline, removed, unreleased).probability >= judged.probability
