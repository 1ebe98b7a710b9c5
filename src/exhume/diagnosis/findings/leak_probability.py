"""How probable it is that a place leaks, with its derivation: by how many zombies it has, and by what was seen of it live."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Leak:
    probability: float
    because: str


def leak(zombies: int, siblings: int, baseline: int, removed: int = 0, unreleased: int = 0) -> Leak:
    """Odds of what is there against what one would expect.

    By count: z zombies where b are expected is z / (z + b). Expected are the baseline, or as many as there are live groups in
    the same place, if that is more (a busy place has some that are on their way). By events, if any were seen: the share of
    the groups removed while we looked that were not released, by Laplace's rule, so that one of one proves little and fifty of
    fifty much.
    Either is evidence of its own.
    """
    expected = max(baseline, siblings, 1)
    by_count = zombies / (zombies + expected)
    because = f"{zombies:,} zombies where {expected:,} would not be odd"
    if removed <= 0:
        return Leak(by_count, because)
    by_events = (unreleased + 1) / (removed + 2)
    because += f"; {unreleased:,} of {removed:,} removed while we looked were not released"
    if unreleased == 0:
        # It comes and goes and leaves nothing behind: what is there is old.
        return Leak(by_count * by_events, because)
    return Leak(1 - (1 - by_count) * (1 - by_events), because)
