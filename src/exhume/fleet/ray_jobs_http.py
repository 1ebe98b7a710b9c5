"""Questions to the dashboard of a Ray cluster, on http.client alone, with a deadline for each answer."""

import http.client
import os
import ssl
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from exhume import __version__
from exhume.errors import ExhumeError, UsageError
from exhume.host.quantities import SECOND, duration, size
from exhume.text import decode, from_json, printable

PORT: Final = 8265
PATIENCE_S: Final = 60.0
LARGEST: Final = 256 << 20
ATTEMPTS: Final = 3
# Where Ray's own clients look for the token, if the cluster asks for one; a file of ours goes first.
TOKEN_FILES: Final = ("EXHUME_RAY_TOKEN_FILE", "RAY_AUTH_TOKEN_PATH")
TOKEN: Final = "RAY_AUTH_TOKEN"


class Dashboard:
    def __init__(self, address: str, patience_s: float = PATIENCE_S) -> None:
        text = address if "://" in address else f"http://{address}"
        try:
            url = urlsplit(text)
            port = url.port
        except ValueError:
            url, port = urlsplit(""), None
        if url.scheme not in ("http", "https") or not url.hostname or port == 0 or not text.isprintable() or " " in text:
            raise UsageError(f"{printable(address)} is not the address of a Ray dashboard: say ray:http://HOST:{PORT}")
        self._secure, self._host = url.scheme == "https", url.hostname
        self._port = port or (443 if self._secure else PORT)
        self._base, self._patience_s = url.path.rstrip("/"), patience_s
        self.described = printable(f"{url.scheme}://{self._host}:{self._port}{self._base}")

    def ask(self, path: str) -> Any:
        """The answer, read as JSON; None if there is no such thing (404)."""
        for attempt in range(ATTEMPTS):
            try:
                status, raw = self._exchange(path)
            except TimeoutError:
                failed = f"no answer within {duration(self._patience_s * SECOND)}"
            except ssl.SSLCertVerificationError as error:
                raise ExhumeError(f"{self.described}: its certificate is not to be trusted: {error.verify_message}") from None
            except (OSError, http.client.HTTPException) as error:
                failed = printable(str(error) or type(error).__name__)
            else:
                if status == 404:
                    return None
                if status in (401, 403):
                    names = " or ".join((*TOKEN_FILES, TOKEN))
                    raise ExhumeError(f"{self.described} wants a token ({status}): name the file that has it by {names}")
                if status < 300:
                    return parsed(raw, self.described)
                failed = f"it says {status}: {printable(decode(raw[:200]))}"
                if status < 500 and status != 429:
                    break
            if attempt + 1 < ATTEMPTS:
                time.sleep(0.25 * 2**attempt)
        raise ExhumeError(f"the Ray dashboard at {self.described} does not answer: {failed}")

    def _exchange(self, path: str) -> tuple[int, bytes]:
        until = time.monotonic() + self._patience_s
        connection: http.client.HTTPConnection
        if self._secure:
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=self._patience_s, context=context)
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=self._patience_s)
        try:
            headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": f"exhume/{__version__}"}
            if token := _token():
                headers["Authorization"] = f"Bearer {token}"
            connection.request("GET", self._base + path, headers=headers)
            reply = connection.getresponse()
            pieces: list[bytes] = []
            received = 0
            # Piece by piece, so that a server that dribbles meets the deadline, too.
            while piece := reply.read1(1 << 18):
                received += len(piece)
                if received > LARGEST:
                    raise ExhumeError(f"{self.described}: an answer is larger than {size(LARGEST)}")
                if time.monotonic() > until:
                    raise TimeoutError
                pieces.append(piece)
            if reply.length:
                raise http.client.IncompleteRead(b"", reply.length)
            return reply.status, b"".join(pieces)
        finally:
            connection.close()


def parsed(raw: bytes, described: str) -> Any:
    try:
        return from_json(raw)
    except ValueError:
        raise ExhumeError(f"{described} does not speak as a Ray dashboard does: {printable(decode(raw[:80]))}") from None


def _token() -> str:
    for name in TOKEN_FILES:
        if path := os.environ.get(name):
            try:
                token = Path(path).read_text(encoding="ascii").strip()
            except (OSError, ValueError):
                raise ExhumeError(f"the token in {printable(path)} ({name}) cannot be read") from None
            break
    else:
        token = os.environ.get(TOKEN, "").strip()
    if not (token.isascii() and token.isprintable()):
        raise ExhumeError("the token for Ray holds what no token may")
    return token
