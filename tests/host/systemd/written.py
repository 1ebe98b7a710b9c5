"""A tree of a few files for tests, written as they would lie there."""

from collections.abc import Mapping
from pathlib import Path

from exhume.host.directory import Directory


def tree(place: Path, files: Mapping[str, str | bytes], links: Mapping[str, str] | None = None) -> Directory:
    """A root with these files and links. Close it, or use it in a `with`."""
    for path, content in files.items():
        where = place / path.lstrip("/")
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_bytes(content if isinstance(content, bytes) else content.encode())
    for path, target in (links or {}).items():
        where = place / path.lstrip("/")
        where.parent.mkdir(parents=True, exist_ok=True)
        where.symlink_to(target)
    return Directory(str(place))
