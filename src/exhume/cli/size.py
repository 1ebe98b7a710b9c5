"""Sizes as people type and read them."""

import argparse
import re

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def size_bytes(text: str) -> int:
    """`4GiB`, `500M`, `1.5g`; a bare number is bytes."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; say 500MiB or 4GiB")
    return int(float(match[1]) * _UNITS[match[2]])


def human(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
