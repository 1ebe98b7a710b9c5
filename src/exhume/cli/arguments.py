"""Types of options: durations and sizes as people type them."""

import argparse
from collections.abc import Callable

from exhume.host.quantities import parse_duration, parse_size


def duration_ns(text: str) -> int:
    return _typed(parse_duration, text)


def size_bytes(text: str) -> int:
    return _typed(parse_size, text)


def _typed(parse: Callable[[str], int], text: str) -> int:
    """argparse shows the message of this error only."""
    try:
        return parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
