"""Answers: JSON, and errors as one sentence for people."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.responses import Response


class Complaint(Exception):
    """A request that cannot be answered, with the status and the sentence that say why."""

    def __init__(self, status: int, sentence: str, parameter: str | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.parameter = parameter


class Download(NamedTuple):
    """An answer that is to be kept as a file."""

    name: str
    media_type: str
    parts: list[bytes]


def answer(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Names may hold anything, halves of surrogate pairs too: escaped, all of it is ASCII."""
    body = json.dumps(document, separators=(",", ":"), allow_nan=False).encode("ascii")
    return Response(body, status, media_type="application/json", headers=headers)


def error(status: int, sentence: str, parameter: str | None = None, headers: Mapping[str, str] | None = None) -> Response:
    return answer({"error": sentence, "parameter": parameter}, status, headers)
