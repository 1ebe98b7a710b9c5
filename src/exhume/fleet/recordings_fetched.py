"""Recordings in object storage (S3, Google Cloud, Azure, HDFS), by Arrow's file systems: fetched one by one, judged, let go.

Stack samples, which are most of a recording and which the judgement of a fleet does not need, are left where they are.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.errors import ExhumeError
from exhume.fleet import recordings
from exhume.fleet.model import Fleet
from exhume.fleet.recordings_fetched_errors import sentence
from exhume.host.quantities import size
from exhume.recording import layout
from exhume.scratch import scratch
from exhume.text import printable

SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "file")
LARGEST = 4 << 30
"""Of one node, fetched at a time; the oldest segments beyond it are left."""
_LEFT = frozenset({"samples", "summary", *layout.DICTIONARIES})
_PIECE = 1 << 22


def load(uri: str, progress: Callable[[float], None] | None = None, thresholds: Thresholds | None = None) -> Fleet:
    import pyarrow as pa
    from pyarrow import fs

    source = printable(_without_secret(uri))
    try:
        system, base = fs.FileSystem.from_uri(uri)
        listing = [
            each for each in system.get_file_info(fs.FileSelector(base, recursive=True)) if each.type == fs.FileType.File
        ]
    except (OSError, pa.ArrowException, ValueError) as error:
        raise ExhumeError(f"{source} cannot be listed: {sentence(error, _bucket(uri))}") from None
    found = grouped([(each.path, each.size or 0) for each in listing], base)
    if not found:
        raise ExhumeError(f"there is no recording in {source}: a directory with {layout.MARK} in it is one")
    notes = [
        f"{source}: recordings were judged without their stack samples, which stay where they are: causes may be less sure"
    ]
    try:
        with scratch("fleet") as place:
            fleet = recordings.gathered(source, len(found), _fetched(system, found, place, notes), progress, thresholds)
    except (pa.ArrowException, OSError) as error:
        raise ExhumeError(f"{source} cannot be read: {sentence(error, _bucket(uri))}") from None
    return Fleet(fleet.source, fleet.nodes, (*fleet.troubles, *notes), fleet.directory, fleet.boots)


def _without_secret(uri: str) -> str:
    """An address may hold a key and a secret before an @, and more behind a ?. Azure has the container before the @."""
    scheme, _, rest = uri.partition("?")[0].partition("://")
    place, slash, path = rest.partition("/")
    who, at, host = place.rpartition("@")
    return f"{scheme}://{'' if ':' in who else who + at}{host}{slash}{path}"


def _bucket(uri: str) -> str:
    return uri.partition("://")[2].partition("?")[0].partition("/")[0].rpartition("@")[2]


def grouped(files: list[tuple[str, int]], base: str) -> dict[str, list[tuple[str, str, int]]]:
    """By recording: where each of its files is, where it belongs below the recording, and its size. Newest first."""
    roots = sorted({path.rpartition("/")[0] for path, _ in files if path.rpartition("/")[2] == layout.MARK})
    found: dict[str, list[tuple[str, str, int]]] = {}
    for path, length in sorted(files, reverse=True):
        root = next((each for each in roots if path.startswith(f"{each}/")), None)
        if root is None:
            continue
        below = path[len(root) + 1 :]
        if _wanted(below):
            called = root[len(base) :].strip("/") or root.rpartition("/")[2]
            found.setdefault(called, []).append((path, below, length))
    return found


def _wanted(below: str) -> bool:
    """Names that we give ourselves and no others: what is fetched cannot be put elsewhere than into the recording."""
    parts = below.split("/")
    name = parts[-1]
    if len(parts) == 1:
        return name == layout.MARK
    if not layout.is_chapter(parts[0]):
        return False
    if len(parts) == 2:
        return name == layout.CHAPTER
    return (
        len(parts) == 3
        and layout.span(parts[1]) is not None
        and name in layout.SEGMENT_FILES
        and name.partition(".")[0] not in _LEFT
    )


def _fetched(
    system: Any, found: dict[str, list[tuple[str, str, int]]], scratch: str, notes: list[str]
) -> Iterator[tuple[str, str]]:
    for index, (called, files) in enumerate(sorted(found.items())):
        into = os.path.join(scratch, str(index))
        taken = 0
        left = 0
        for path, below, length in files:
            small = not below.endswith((".parquet", ".arrows"))
            if not small and taken + length > LARGEST:
                left += 1
                continue
            taken += length
            target = os.path.join(into, *below.split("/"))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with system.open_input_stream(path) as stream, open(target, "wb") as out:
                while piece := stream.read(_PIECE):
                    out.write(piece)
        if left:
            notes.append(f"{printable(called)}: {left:,} of the oldest files beyond {size(LARGEST)} were left out")
        yield into, called
        # Whoever judges it has read it by now: the next one is asked for.
        shutil.rmtree(into, ignore_errors=True)
