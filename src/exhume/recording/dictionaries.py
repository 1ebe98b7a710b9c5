"""The dictionaries of a chapter (stacks, frames, threads): joined from what was written when, and looked up by id."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from exhume.recording.plain import Columns, concatenated, take
from exhume.recording.recording import Ints
from exhume.recording.summary import CLASSES

UNKNOWN = CLASSES.index("user")
"""What a sample counts as whose stack was lost."""


def joined(parts: Sequence[Columns]) -> Columns:
    """Rows of all parts by id; of several with the same id the last one stays."""
    whole = concatenated(parts)
    return take(whole, lasts(whole["id"]))


def lasts(ids: Ints) -> Ints:
    """Where each id is for the last time, by id."""
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    return order[np.append(ordered[1:] != ordered[:-1], True)] if len(ids) else order


def classes_of(stack: Ints, ids: Ints, class_names: NDArray[np.object_]) -> NDArray[np.int8]:
    """The class of each sample, as an index into CLASSES, by the stacks' ids (sorted) and classes."""
    codes = {name: code for code, name in enumerate(CLASSES)}
    by_row = np.fromiter((codes.get(name, UNKNOWN) for name in class_names), np.int8, len(class_names))
    if not len(ids):
        return np.full(len(stack), UNKNOWN, dtype=np.int8)
    if ids[-1] - ids[0] == len(ids) - 1:  # none is missing, as in a chapter that was kept whole: no need to search
        place = np.clip(stack - ids[0], 0, len(ids) - 1)
    else:
        place = np.minimum(np.searchsorted(ids, stack), len(ids) - 1)
    return np.where(ids[place] == stack, by_row[place], np.int8(UNKNOWN))
