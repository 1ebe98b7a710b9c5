"""A real Prometheus with days of history in it, made in seconds, and a proxy before it that misbehaves as it is told."""

import http.client
import http.server
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.agent.prometheus import Prometheus, free_port, needs, promtool, until

EVERY_S = 240


@dataclass(slots=True)
class History:
    """Samples, every four minutes, until now."""

    days: float
    end_s: float = field(default_factory=lambda: float(int(time.time()) // EVERY_S * EVERY_S - EVERY_S))
    lines: dict[str, list[str]] = field(default_factory=dict)

    @property
    def times(self) -> list[float]:
        count = int(self.days * 86_400 / EVERY_S)
        return [self.end_s - (count - 1 - i) * EVERY_S for i in range(count)]

    def add(self, metric: str, value: Callable[[float], float | None], **labels: str) -> None:
        """`value` of a time; None where there is no sample."""
        inside = ",".join(f'{key}="{text}"' for key, text in labels.items())
        into = self.lines.setdefault(metric, [])
        for at in self.times:
            if (of := value(at)) is not None:
                into.append(f"{metric}{{{inside}}} {of:.10g} {at:.0f}")

    def text(self) -> str:
        families = []
        for metric, lines in self.lines.items():
            counts = metric.endswith("_total")
            families.append(f"# TYPE {metric.removesuffix('_total')} {'counter' if counts else 'gauge'}")
            families += lines
        return "\n".join([*families, "# EOF", ""])


@contextmanager
def served(place: Path, history: History, *options: str) -> Iterator[Prometheus]:
    needs("prometheus", "promtool")
    place.mkdir(parents=True, exist_ok=True)
    (place / "history.om").write_text(history.text())
    made = promtool("tsdb", "create-blocks-from", "openmetrics", str(place / "history.om"), str(place / "data"))
    assert made.returncode == 0, made.stderr
    (place / "prometheus.yml").write_text("{}\n")
    port = free_port()
    command = [
        "prometheus",
        f"--config.file={place / 'prometheus.yml'}",
        f"--storage.tsdb.path={place / 'data'}",
        "--storage.tsdb.retention.time=1y",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
        *options,
    ]
    server = Prometheus(command, port, place / "prometheus.log")
    try:
        until(server.ready, "Prometheus is ready")
        yield server
    finally:
        server.end()


@dataclass(frozen=True, slots=True)
class Asked:
    path: str
    query: str
    start: float | None
    end: float | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a proxy does instead of passing on, or to what it passes on."""

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    change: Callable[[bytes], bytes] | None = None
    """Of the real answer."""
    cut: bool = False
    """Half of the real answer, and then the connection ends."""
    hang: bool = False
    """No answer, for as long as the test lasts."""


@dataclass(slots=True)
class Proxy:
    url: str
    asked: list[Asked]
    behaves: Callable[[Asked, int], Answer | None]
    """By what is asked and how often that was asked before; None passes on."""


@contextmanager
def proxied(server: Prometheus, behaves: Callable[[Asked, int], Answer | None]) -> Iterator[Proxy]:
    real = urlsplit(server.url)
    over = threading.Event()
    counted: dict[Asked, int] = {}
    proxy = Proxy("", [], behaves)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            form = {key: values[0] for key, values in parse_qs(body.decode()).items()}
            times = [float(form[key]) if key in form else None for key in ("start", "end")]
            asked = Asked(self.path, form["query"], times[0], times[1])
            proxy.asked.append(asked)
            counted[asked] = counted.get(asked, 0) + 1
            answer = proxy.behaves(asked, counted[asked] - 1)
            if answer is not None and answer.hang:
                over.wait(60)
                return
            if answer is not None and answer.body:
                self._reply(answer.status, answer.body, answer.headers)
                return
            connection = http.client.HTTPConnection(real.hostname or "", real.port, timeout=300)
            connection.request("POST", self.path, body, {"Content-Type": self.headers["Content-Type"]})
            reply = connection.getresponse()
            raw = reply.read()
            connection.close()
            if answer is not None and answer.change is not None:
                raw = answer.change(raw)
            self._reply(reply.status, raw, (), cut=answer is not None and answer.cut)

        def _reply(self, status: int, raw: bytes, headers: tuple[tuple[str, str], ...], cut: bool = False) -> None:
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw[: len(raw) // 2] if cut else raw)
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        proxy.url = f"http://127.0.0.1:{listener.server_address[1]}"
        try:
            yield proxy
        finally:
            over.set()
            listener.shutdown()
            thread.join(120)
