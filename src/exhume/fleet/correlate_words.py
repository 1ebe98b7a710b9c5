"""What a correlation says, in words and as JSON."""

from typing import Any

from exhume.fleet.correlate import Correlation, Share
from exhume.host.quantities import SECOND, counted, duration

SCHEMA = "exhume.correlation/1"
_SURE = 0.05
_CAUTION = "What goes together need not be cause and effect: a burst of work may want memory and use up its quota at once."


def sentence(found: Correlation) -> str:
    share = found.overall
    nodes = len(found.nodes)
    of = f"{duration(share.throttled_s * SECOND)} of throttling on {counted(nodes, 'node')}"
    if share.explained is None:
        return f"Of {of} nothing can be said: {share.why_not}." if nodes else "Nothing was throttled."
    if not share.reclaim_ratio:
        return f"Reclaim explains none of {of}: there was no reclaim."
    seen = (
        f"{share.coinciding:.1%} of it fell into times of reclaim ({share.reclaim_ratio:.1%} of the time), "
        f"where {share.expected:.1%} would by chance{_kept(found.rhythm)}"
    )
    luck = f"the chance of so much by luck is {share.chance:.2g}"
    if not claimed(share):
        return f"Reclaim explains none of {of} that luck would not: {seen}; {luck}."
    return f"Reclaim explains {percent(share)} of {of}: {seen}; {luck}."


def claimed(share: Share) -> bool:
    """Luck is unlikely by the shifts, and the interval has not nothing in it: days are few, so that the shifts alone are not
    enough (of 300 nodes with nothing but a common rhythm 24 pass the one at 5 %, and 7 both)."""
    return (
        share.explained is not None and share.chance <= _SURE and (share.low if share.low is not None else share.explained) > 0
    )


def percent(share: Share) -> str:
    if share.explained is None:
        return "?"
    if share.low is None or share.high is None:
        return f"{max(0.0, share.explained):.0%} (too little data for an interval)"
    return f"{max(0.0, share.explained):.0%} ({max(0.0, share.low):.0%} to {max(0.0, share.high):.0%})"


def cautions(found: Correlation) -> list[str]:
    said = []
    if found.rhythm == "nothing":
        said.append(
            "Less than three days of data: what both owe to the rhythm of the day cannot be told from what is reclaim's."
        )
    if claimed(found.overall):
        said.append(_CAUTION)
    if found.left_out:
        said.append(f"{counted(len(found.left_out), 'node')} left out: not throttled, or one of the two is not known of them.")
    return said


def _kept(rhythm: str) -> str:
    return {"week": ", the rhythm of the week counted", "day": ", the rhythm of the day counted"}.get(rhythm, "")


def as_json(found: Correlation, source: str, troubles: tuple[str, ...]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "source": source,
        "summary": sentence(found),
        "overall": _share(found.overall),
        "nodes": [{"node": each.node, **_share(each)} for each in found.nodes],
        "step_s": found.step_s,
        "steps": found.steps,
        "rhythm": found.rhythm,
        "left_out": list(found.left_out),
        "troubles": [*troubles, *cautions(found)],
    }


def _share(share: Share) -> dict[str, Any]:
    return {
        "throttled_s": round(share.throttled_s, 3),
        "reclaim_ratio": round(share.reclaim_ratio, 6),
        "coinciding": round(share.coinciding, 6),
        "expected": round(share.expected, 6),
        "explained": None if share.explained is None else round(share.explained, 6),
        "low": None if share.low is None else round(share.low, 6),
        "high": None if share.high is None else round(share.high, 6),
        "chance": round(share.chance, 6),
        "claimed": claimed(share),
        **({"why_not": share.why_not} if share.why_not else {}),
    }
