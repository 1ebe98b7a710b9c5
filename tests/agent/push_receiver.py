"""A receiver of profiles on loopback that keeps what it was sent and answers as it is told."""

import contextlib
import http.server
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from email.parser import BytesParser
from email.policy import HTTP
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from exhume.agent.spool import Parcel

BEGIN_REAL = 1_760_000_000_000_000_000


class Came(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def query(self) -> dict[str, str]:
        return {key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()}

    @property
    def parts(self) -> dict[str, tuple[str, bytes]]:
        """Of a multipart form: file name and content by field, as the standard library's parser finds them."""
        head = f"Content-Type: {self.headers['content-type']}\r\n\r\n".encode()
        found = {}
        for part in BytesParser(policy=HTTP).parsebytes(head + self.body).iter_parts():
            content = part.get_payload(decode=True)
            assert isinstance(content, bytes)
            found[str(part.get_param("name", header="content-disposition"))] = (part.get_filename() or "", content)
        return found


class Answer(NamedTuple):
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


class Receiver:
    """`answer` is called with what came and how many came before it; it may block, or raise ConnectionError to hang up."""

    def __init__(self, answer: Callable[[Came, int], Answer] | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.came: list[Came] = []
        self.more = threading.Condition()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                came = Came(self.path, {key.lower(): value for key, value in self.headers.items()}, body)
                with receiver.more:
                    before = len(receiver.came)
                    receiver.came.append(came)
                    receiver.more.notify_all()
                try:
                    told = Answer() if answer is None else answer(came, before)
                except ConnectionError:
                    self.close_connection = True
                    return
                with contextlib.suppress(OSError):
                    self.send_response(told.status)
                    for key, value in told.headers:
                        self.send_header(key, value)
                    self.send_header("Content-Length", str(len(told.body)))
                    self.end_headers()
                    self.wfile.write(told.body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients that hang up are the test
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = int(self._server.server_address[1])
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def wait(self, many: int, timeout_s: float = 120.0) -> list[Came]:
        with self.more:
            assert self.more.wait_for(lambda: len(self.came) >= many, timeout_s), f"{len(self.came)} of {many} came"
            return list(self.came)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(120)


@contextlib.contextmanager
def receiving(answer: Callable[[Came, int], Answer] | None = None, tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    receiver = Receiver(answer, tls)
    try:
        yield receiver
    finally:
        receiver.close()


def certificate(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """A certificate for 127.0.0.1 that signs itself, and the context that serves it."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=receiver".split()
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return cert, context


def parcel(number: int = 0, body: bytes = b"", kind: str = "pprof") -> Parcel:
    start = BEGIN_REAL + number * 60 * 10**9
    made = body or b"profile %d" % number
    assert kind in ("pprof", "otlp")
    return Parcel(kind, "exhume", start, start + 60 * 10**9, 49, (("node", "node-7"),), made)  # type: ignore[arg-type]
