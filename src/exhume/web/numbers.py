"""Arrays as answers have them: lists with null for what is not known, bytes as base64."""

import base64
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from exhume.render.heat import Cells

UNKNOWN = 255
_FULL = 254


def numbers(values: NDArray[np.floating[Any]], digits: int) -> list[float | int | None]:
    rounded = np.round(values.astype(np.float64), digits)
    known = np.isfinite(rounded).tolist()
    found = rounded.tolist()
    if digits == 0:
        return [int(value) if there else None for value, there in zip(found, known, strict=True)]
    return [value if there else None for value, there in zip(found, known, strict=True)]


def shares(rows: NDArray[np.floating[Any]]) -> list[str]:
    """Shares from 0 to 1 as bytes from 0 to 254; 255 is not known."""
    unknown = np.isnan(rows)
    scaled = np.rint(np.clip(np.where(unknown, 0.0, rows), 0.0, 1.0) * _FULL)
    return [encoded(row) for row in np.where(unknown, UNKNOWN, scaled).astype(np.uint8)]


def encoded(values: NDArray[np.uint8]) -> str:
    return base64.b64encode(values.tobytes()).decode("ascii")


def heat_map(cells: "Cells", start_us: int, ready: float) -> dict[str, Any]:
    """Counts as bytes, 255 for the most of them."""
    most = int(cells.counts.max(initial=0))
    scaled = -(-cells.counts * 255 // max(1, most))
    return {
        "start": start_us,
        "seconds": cells.wanted.number,
        "seconds_per_column": cells.width,
        "columns": len(cells.counts),
        "rows": cells.counts.shape[1],
        "cells": encoded(scaled.astype(np.uint8)),
        "most": most,
        "unknown": encoded(np.packbits(~cells.known, bitorder="little")),
        "ready": round(ready, 3),
    }
