"""One file for a colleague or a vendor: a tar archive, which any system opens, with a recording in it to be read again."""

import gzip
import io
import os
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from exhume.errors import ExhumeError, Refused
from exhume.recording.recording import Recording
from exhume.recording.writer import Writer
from exhume.text import printable

_UNBOUNDED = 1 << 60


def write_recording(
    path: str, recording: Recording, about: Mapping[str, str | int | bool], history: Recording | None = None
) -> None:
    """A recording in memory as a directory that Folder reads; what there is from before it, as a segment of its own."""
    writer = Writer(path, recording.node, about, budget_bytes=_UNBOUNDED)
    try:
        if history is not None:
            writer.append(history)
            writer.cut()
        writer.append(recording)
    finally:
        writer.close()
    if writer.lost:
        raise ExhumeError(f"the recording of the bundle could not be written: {'; '.join(writer.troubles)}")


@contextmanager
def new_file(path: str) -> Iterator[io.BufferedWriter]:
    """A file for its owner alone that is there when it is whole, and takes no other's place."""
    shown = printable(path)
    if os.path.lexists(path):
        raise Refused(f"{shown} is there already, and a bundle overwrites nothing: name another file with -o")
    temporary = f"{path}.part-{os.getpid()}"
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            _name(temporary, path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
    except FileExistsError:
        raise Refused(f"{shown} is there already, and a bundle overwrites nothing: name another file with -o") from None
    except OSError as error:
        raise ExhumeError(f"{shown} could not be written: {error.strerror}; name another place with -o") from error


def _name(temporary: str, path: str) -> None:
    """By a link: unlike a rename it fails where somebody was faster. Some file systems have no links."""
    try:
        os.link(temporary, path, follow_symlinks=False)
    except PermissionError:
        if os.path.lexists(path):
            raise FileExistsError(path) from None
        os.rename(temporary, path)


def pack(out: io.BufferedWriter, top: str, texts: Mapping[str, bytes], recording: str, time_s: int) -> None:
    """`texts` by name, and the directory of a recording, below one directory `top`. Says nothing of who packed it and where."""
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=time_s, compresslevel=6) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        _directory(archive, top, time_s)
        for name, text in texts.items():
            _file(archive, f"{top}/{name}", len(text), io.BytesIO(text), time_s)
        for directory, directories, names in os.walk(recording):
            directories.sort()
            inside = os.path.normpath(os.path.join(top, "recording", os.path.relpath(directory, recording)))
            _directory(archive, inside, time_s)
            for name in sorted(names):
                with open(os.path.join(directory, name), "rb") as file:
                    _file(archive, f"{inside}/{name}", os.fstat(file.fileno()).st_size, file, time_s)


def _directory(archive: tarfile.TarFile, name: str, time_s: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o700, time_s
    archive.addfile(entry)


def _file(archive: tarfile.TarFile, name: str, size: int, content: io.BufferedIOBase, time_s: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = size, 0o600, time_s
    archive.addfile(entry, content)
