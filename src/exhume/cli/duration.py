"""Durations as people type them."""

import argparse
import re

_UNITS = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "min": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9}


def duration_ns(text: str) -> int:
    """`300ms`, `3s`, `2.5s`, `10m`, `12h`, `1d`; a bare number is seconds."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|min|h|d)?", text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; say 300ms, 3s, 10m or 12h")
    return int(float(match[1]) * _UNITS[match[2] or "s"])
