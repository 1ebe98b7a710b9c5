"""Everything that a recording holds, as bytes that can be searched: files as they are, and what their columns say."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def everything(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Every file of a folder by its name, raw, and decoded where it is compressed: by Arrow itself, not by our readers."""
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        name = str(path.relative_to(folder))
        yield name, path.read_bytes()
        if path.suffix == ".parquet":
            yield f"{name} (decoded)", _decoded(pq.read_table(path))
            yield f"{name} (metadata)", repr(pq.read_metadata(path).metadata).encode()
        elif path.suffix == ".arrows":
            with pa.OSFile(str(path)) as file:
                yield f"{name} (decoded)", _decoded(pa.ipc.open_stream(file).read_all())


def _decoded(table: "pa.Table") -> bytes:
    return json.dumps(table.to_pylist(), default=repr, ensure_ascii=False).encode("utf-8", "backslashreplace")


def holding(folder: Path, words: bytes) -> list[str]:
    """The files that have these bytes."""
    return [name for name, data in everything(folder) if words in data]


def modes(folder: Path) -> dict[str, str]:
    """What is readable by others than its owner: names and modes."""
    places = [folder, *folder.rglob("*")]
    return {str(place): oct(place.lstat().st_mode) for place in places if place.lstat().st_mode & 0o077}
