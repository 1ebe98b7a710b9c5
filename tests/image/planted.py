"""A tree that is written down in a test: paths with bytes, with modes where they matter, and links."""

from collections.abc import Mapping

from exhume.host.paths import resolve
from exhume.host.tree import LARGEST, Entry

Content = str | bytes


class Planted:
    """A Tree (host/tree.py) in memory. A file's mode is 0644, or 0755 if it begins with #!, unless `modes` has it."""

    def __init__(
        self, files: Mapping[str, Content], links: Mapping[str, str] | None = None, modes: Mapping[str, int] | None = None
    ) -> None:
        self.name = "planted"
        self.live = False
        self.troubles: list[str] = []
        self._files = {path: text.encode() if isinstance(text, str) else text for path, text in files.items()}
        self._modes = modes or {}
        self._links = links or {}
        self._directories: dict[str, set[str]] = {"": set()}
        for path in (*self._files, *self._links):
            parent, _, name = path.rpartition("/")
            while True:
                self._directories.setdefault(parent, set()).add(name)
                if not parent:
                    break
                parent, _, name = parent.rpartition("/")

    def _itself(self, path: str) -> Entry | None:
        path = path.rstrip("/")
        if path in self._links:
            return Entry("link", 0o777, 0, self._links[path])
        if path in self._files:
            text = self._files[path]
            return Entry("file", self._modes.get(path, 0o755 if text.startswith(b"#!") else 0o644), len(text))
        return Entry("directory", 0o755) if path in self._directories else None

    def entry(self, path: str, follow: bool = True) -> Entry | None:
        found = resolve(path, self._itself, follow)
        return found[1] if found else None

    def real(self, path: str) -> str | None:
        found = resolve(path, self._itself)
        return found[0] if found else None

    def names(self, path: str) -> list[str]:
        real = self.real(path)
        return sorted(self._directories.get((real or "/nowhere").rstrip("/"), ()))

    def read(self, path: str, largest: int = LARGEST) -> bytes | None:
        real = self.real(path)
        return None if real is None or real not in self._files else self._files[real][:largest]
