"""When a request is worth another attempt, and when to make it. Light to import."""

from contextlib import suppress

LONGEST_RETRY_AFTER_S = 3600.0


def temporary(status: int) -> bool:
    """Whether the same request may well succeed later."""
    return status in (408, 425, 429) or status >= 500


def retry_after_s(value: str | None, now_s: float) -> float | None:
    """From a number of seconds or a date (RFC 9110, 10.2.3), an hour at most; None for anything else."""
    value = (value or "").strip()
    if value.isascii() and value.isdecimal():
        return min(float(value[:9]), LONGEST_RETRY_AFTER_S)
    from email.utils import parsedate_to_datetime

    with suppress(ValueError, TypeError, IndexError, OverflowError):
        return min(max(0.0, parsedate_to_datetime(value).timestamp() - now_s), LONGEST_RETRY_AFTER_S)
    return None


def backoff_s(
    attempt: int,
    after_s: float | None = None,
    *,
    first_s: float = 0.25,
    longest_s: float = 60.0,
    longest_after_s: float = 60.0,
    chance: float | None = None,
) -> float:
    """How long to wait before the next attempt: twice as long each time, and at least as long as the server asked for
    (`after_s`). Spread by `chance` (0 to 1), so that a fleet whose server comes back does not return all at once."""
    if chance is None:
        import random

        chance = random.random()
    doubled = min(first_s * 2.0 ** min(attempt, 30), longest_s)
    if after_s is not None:
        return max(min(after_s, longest_after_s), doubled) * (1.0 + chance / 10)
    return doubled * (0.5 + chance / 2)
