"""The share of throttling that reclaim explains, on series where it is known because it was planted."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.cli.main import main
from exhume.fleet.correlate import Track, correlate
from exhume.fleet.correlate_words import as_json, claimed, sentence
from tests.examples import examples

CAPTURE = pytest.CaptureFixture[str]
DAY = 1440


def planted(share: float, seed: int, days: int = 7, rhythm: bool = True) -> Track:
    """Bursts of reclaim and of throttling that both follow the day; so much of the throttling is in the bursts of reclaim."""
    draws = np.random.default_rng(seed)
    steps = days * DAY
    busy = 0.5 - 0.5 * np.cos(np.arange(steps) / DAY * 2 * np.pi) if rhythm else np.full(steps, 0.5)
    starts = draws.random(steps) < 0.01 * busy
    active = np.convolve(starts, np.ones(6))[:steps] > 0
    reclaimed = active * draws.uniform(500, 50_000, steps)
    own = (draws.random(steps) < 0.05 * busy) * draws.exponential(1.0, steps)
    caused = active * draws.exponential(1.0, steps)
    if share < 1:
        caused *= share / (1 - share) * own.sum() / caused.sum()
    else:
        own *= 0
    return Track(f"node-{seed}", own + (caused if share > 0 else 0.0), reclaimed)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 1.0])
def test_the_planted_share_is_found_and_the_interval_has_it_in_nine_of_ten(share: float) -> None:
    found = [correlate([planted(share, seed)], 60, 100).overall for seed in range(20)]
    inside = [each.low <= share <= each.high + 1e-9 for each in found if each.low is not None and each.high is not None]
    assert len(inside) == 20
    assert sum(inside) >= 17
    assert np.mean([each.explained for each in found if each.explained is not None]) == pytest.approx(share, abs=0.03)
    assert all(claimed(each) for each in found)


def test_the_rhythm_of_the_day_alone_explains_nothing() -> None:
    """Both are there by day and not by night: a query for both at once shows far more than chance would at any hour."""
    found = [correlate([planted(0.0, seed)], 60, 100) for seed in range(40)]
    naive = [each.overall.coinciding / each.overall.reclaim_ratio for each in found]
    assert np.mean(naive) > 1.3
    assert sum(claimed(each.overall) for each in found) <= 3
    assert "none of" in sentence(found[0])
    assert abs(np.mean([each.overall.explained or 0.0 for each in found])) < 0.02


def test_many_nodes_are_one_answer_with_a_narrower_interval_and_the_worst_first() -> None:
    tracks = [planted(0.6 if seed < 5 else 0.1, seed) for seed in range(25)]
    found = correlate(tracks, 60, 100)
    share = found.overall
    assert share.low is not None
    assert share.high is not None
    assert share.low > 0.1
    assert {each.node for each in found.nodes[:5]} == {f"node-{seed}" for seed in range(5)}
    assert "the rhythm of the day counted" in sentence(found)
    assert found.rhythm == "day"


def test_the_same_seed_gives_the_same_digits_and_the_order_of_nodes_is_nothing() -> None:
    tracks = [planted(0.5, seed) for seed in range(3)]
    assert as_json(correlate(tracks, 60, 100), "x", ()) == as_json(correlate(tracks, 60, 100), "x", ())
    turned = correlate(tracks[::-1], 60, 100).overall
    assert turned.coinciding == pytest.approx(correlate(tracks, 60, 100).overall.coinciding)


def test_gaps_are_left_out_and_do_not_change_the_answer() -> None:
    track = planted(0.5, 3, days=14)
    holes = track.throttled_s.copy()
    holes[3000:6000] = np.nan
    reclaimed = track.reclaimed.copy()
    reclaimed[9000:10_000] = np.nan
    found = correlate([Track("n", holes, reclaimed)], 60, 100).overall
    assert found.explained == pytest.approx(0.5, abs=0.1)


def test_short_data_are_judged_and_said_to_know_no_rhythm() -> None:
    found = correlate([planted(0.8, 1, days=1, rhythm=False)], 60, 100)
    assert found.rhythm == "nothing"
    assert found.overall.explained == pytest.approx(0.8, abs=0.15)
    assert any("Less than three days" in said for said in as_json(found, "x", ())["troubles"])


def test_reclaim_all_the_time_is_no_answer_and_none_is_zero() -> None:
    track = planted(0.5, 1)
    always = correlate([Track("n", track.throttled_s, np.full(len(track.reclaimed), 5000.0))], 60, 100)
    assert always.overall.explained is None
    assert "nothing can be said: reclaim goes on 100% of the time" in sentence(always)
    never = correlate([Track("n", track.throttled_s, np.zeros(len(track.reclaimed)))], 60, 100)
    assert never.overall.explained == 0
    assert sentence(never).endswith("there was no reclaim.")
    nothing = correlate([Track("n", np.zeros(5000), track.reclaimed[:5000])], 60, 100)
    assert sentence(nothing) == "Nothing was throttled."
    assert nothing.left_out == ("n",)
    assert sentence(correlate([], 60, 100)) == "Nothing was throttled."


numbers = st.one_of(st.just(float("nan")), st.floats(0, 1e9), st.just(0.0))


@given(st.lists(st.tuples(st.text(max_size=5), st.lists(st.tuples(numbers, numbers), max_size=200)), max_size=4))
@settings(max_examples=examples(60))
def test_whatever_comes_the_shares_are_shares(given_tracks: list[tuple[str, list[tuple[float, float]]]]) -> None:
    tracks = [
        Track(name, np.array([pair[0] for pair in pairs], dtype=float), np.array([pair[1] for pair in pairs], dtype=float))
        for name, pairs in given_tracks
    ]
    found = correlate(tracks, 60, 100)
    for each in (found.overall, *found.nodes):
        assert 0 <= each.coinciding <= 1 + 1e-9
        assert 0 <= each.expected <= 1 + 1e-9
        assert each.explained is None or each.explained <= 1 + 1e-9
        assert 0 < each.chance <= 1
    assert sentence(found)


def test_minutes_in_parquet_are_read_as_they_are(tmp_path: Path, capsys: CAPTURE) -> None:
    (tmp_path / "minutes").mkdir()
    for seed in range(3):
        track = planted(0.7, seed, days=4)
        steps = len(track.throttled_s)
        times = np.datetime64("2026-11-01T00:00:00", "us") + np.arange(steps) * np.timedelta64(60, "s")
        throttled = [None if i % 97 == 0 else int(value * 1000) for i, value in enumerate(track.throttled_s.tolist())]
        table = {
            "node": [track.node] * steps,
            "time": times,
            "throttled_ms": pa.array(throttled, pa.int32()),
            "reclaimed": (track.reclaimed * 60).astype(np.int64),
        }
        pq.write_table(pa.table(table), tmp_path / "minutes" / f"{seed}.parquet")
    assert main(["fleet", "correlate", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("Reclaim explains ")
    assert 55 < int(printed.split()[2].removesuffix("%")) < 80
    assert "on 3 nodes" in " ".join(printed.split())
    assert "\x1b" not in printed
    assert main(["fleet", "correlate", str(tmp_path), "--namespace", "x"]) == 64
    assert main(["fleet", "correlate", str(tmp_path / "minutes" / "0.parquet")]) == 64
