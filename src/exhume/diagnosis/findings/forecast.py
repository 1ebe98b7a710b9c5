"""When zombies will hurt, at the rate at which they come: one rule for all who foretell it."""

from exhume.host.quantities import DAY, MINUTE, duration

# From about here on one pass of reclaim over zombies on tmpfs holds a core for the 5 s after which a network driver gives
# up (4.6 s measured for 20,000 on Linux 6.18).
PAIN = 20_000
# What came in less time than this says nothing about days.
SHORTEST_S = 60.0


def per_hour(growth: float, seconds: float) -> float:
    return growth * 3600 / seconds if seconds > 0 else 0.0


def days_to_pain(zombies: int, rate_per_hour: float) -> float | None:
    """None if they do not grow; 0 if it is reached."""
    if zombies >= PAIN:
        return 0.0
    return (PAIN - zombies) / rate_per_hour / 24 if rate_per_hour > 0 else None


def spelled(days: float) -> str:
    return duration(max(MINUTE, days * DAY))
