"""A client of Prometheus' query API that expects the worst: slow answers, partial ones, 429 and 503, questions too large.

On http.client alone. A question has a deadline, however slowly its answer comes; one that is too much is asked in halves; what
was put up with on the way is in `troubles`, a sentence each.
"""

import base64
import http.client
import os
import ssl
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from exhume import __version__
from exhume.errors import ExhumeError, UsageError
from exhume.fleet.prometheus_reply import Refusal, Reply, Series, joined, parse
from exhume.fleet.prometheus_wire import opened, pieces
from exhume.host.quantities import SECOND, compact, counted, duration
from exhume.text import printable

PATIENCE_S = 60.0
"""For one answer, whole."""
ATTEMPTS = 6
BUDGET_S = 300.0
"""To be spent on waiting, over all questions."""
LARGEST = 256 << 20
# web/api/v1/api.go: "exceeded maximum resolution of 11,000 points per timeseries".
MOST_POINTS = 10_000
TOKEN_FILE = "EXHUME_PROMETHEUS_TOKEN_FILE"
_LONGEST_WAIT_S = 60.0
_MOST_WARNINGS = 5


class Client:
    def __init__(
        self,
        url: str,
        patience_s: float = PATIENCE_S,
        attempts: int = ATTEMPTS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url = _checked(url)
        self._patience_s, self._attempts, self._sleep = patience_s, attempts, sleep
        # A question may be longer than an address may be, so it is sent as a form; some gateways let only GET through.
        self._form = True
        self._answered = False
        self._waited_s = 0.0
        self._counted: Counter[str] = Counter()
        self._warnings: Counter[str] = Counter()
        self._missing: list[str] = []

    @property
    def described(self) -> str:
        """Its address, without what is secret in it."""
        host = self._url.netloc.rpartition("@")[2]
        return printable(f"{self._url.scheme}://{host}{self._url.path.rstrip('/')}")

    @property
    def troubles(self) -> tuple[str, ...]:
        said = [f"{what} ({counted(count, 'time')})" for what, count in self._counted.items()]
        warned = [f"it warns: {text} ({count:,} times)" for text, count in self._warnings.most_common(_MOST_WARNINGS)]
        return tuple(f"{self.described}: {each}" for each in [*said, *warned, *self._missing])

    def now_s(self) -> float:
        """The server's own time: its samples are stamped by it, and our clock may be minutes away from that."""
        found = self.instant("time()", None)
        if not found:
            raise ExhumeError(f"{self.described} does not know what time it is: it is no Prometheus")
        now = float(found[0].values[-1])
        if abs(now - time.time()) > 60:
            self._counted[f"its clock is {duration(abs(now - time.time()) * SECOND)} from this one's; its own is used"] += 1
        return now

    def instant(self, expression: str, at_s: float | None) -> tuple[Series, ...]:
        query = {"query": expression} | ({} if at_s is None else {"time": f"{at_s:.3f}"})
        try:
            return self._asked("query", query).series
        except Refusal as refusal:
            raise ExhumeError(f"{self.described} does not answer: {refusal}") from None

    def over(self, expression: str, start_s: float, end_s: float, step_s: float) -> tuple[Series, ...]:
        """A value every step, from start to end. A part that cannot be had is told and left out, unless it is all of it."""
        pieces: list[Series] = []
        lost: list[tuple[float, float, str]] = []
        for first, last in _cut(start_s, end_s, step_s, MOST_POINTS):
            self._over(expression, first, last, step_s, pieces, lost)
        if lost and not pieces:
            raise ExhumeError(f"{self.described} does not answer: {lost[0][2]}")
        for first, last, why in lost[:_MOST_WARNINGS]:
            span = f"{_clock(first)} to {_clock(last)}"
            self._missing.append(f"{printable(expression, 60)}: nothing could be read from {span}: {why}")
        return joined(pieces)

    def _over(
        self,
        expression: str,
        start_s: float,
        end_s: float,
        step_s: float,
        pieces: list[Series],
        lost: list[tuple[float, float, str]],
    ) -> None:
        query = {"query": expression, "start": f"{start_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:.3f}"}
        try:
            pieces += self._asked("query_range", query).series
        except Refusal as refusal:
            points = round((end_s - start_s) / step_s) + 1
            if refusal.trouble != "too much" or points < 2:
                lost.append((start_s, end_s, str(refusal)))
                return
            self._counted["a question was too large and was asked in halves"] += 1
            for first, last in _cut(start_s, end_s, step_s, (points + 1) // 2):
                self._over(expression, first, last, step_s, pieces, lost)

    def _asked(self, what: str, query: Mapping[str, str]) -> Reply:
        for attempt in range(self._attempts):
            after: float | None = None
            try:
                status, raw, said_after = self._exchange(what, query)
                after = retry_after(said_after, time.time())
                reply = parse(status, raw)
                self._warnings.update(reply.warnings)
                return reply
            except Refusal as refusal:
                if refusal.trouble != "again":
                    raise
                failed = refusal
            except TimeoutError:
                # Twice too slow is too much: it is asked for less then.
                failed = Refusal(
                    "again" if attempt == 0 else "too much", f"no answer within {duration(self._patience_s * SECOND)}"
                )
                if attempt:
                    raise failed from None
            except (OSError, http.client.HTTPException) as error:
                if isinstance(error, ssl.SSLCertVerificationError):
                    raise Refusal("never", f"its certificate is not to be trusted: {error.verify_message}") from None
                failed = Refusal("again", printable(str(error) or type(error).__name__))
            wait_s = min(_LONGEST_WAIT_S, 0.25 * 2**attempt if after is None else after)
            if attempt + 1 == self._attempts or self._waited_s + wait_s > BUDGET_S:
                break
            self._counted[f"had to be asked again: {failed}"] += 1
            self._waited_s += wait_s
            self._sleep(wait_s)
        raise Refusal("never", f"asked {attempt + 1} times in vain: {failed}")

    def _exchange(self, what: str, query: Mapping[str, str]) -> tuple[int, bytes, str]:
        url, until = self._url, time.monotonic() + self._patience_s
        connection = opened(url, self._patience_s, self._answered)
        try:
            target = f"{url.path.rstrip('/')}/api/v1/{what}"
            form = urlencode({**query, "timeout": compact(self._patience_s * SECOND)})
            own = urlencode(parse_qsl(url.query))  # what the address had (a tenant ...) goes along
            if self._form:
                connection.request("POST", f"{target}?{own}" if own else target, form, self._headers())
            else:
                connection.request("GET", f"{target}?{form}{'&' * bool(own)}{own}", headers=self._headers())
            reply = connection.getresponse()
            with closing(reply):
                raw = b"".join(pieces(reply, connection, until, LARGEST))
            self._answered = True
        finally:
            connection.close()
        if reply.status == 405 and self._form:
            self._form = False
            return self._exchange(what, query)
        return reply.status, raw, reply.headers.get("Retry-After", "")

    def _headers(self) -> dict[str, str]:
        headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "Content-Type": "application/x-www-form-urlencoded",
            "User-Agent": f"exhume/{__version__}",
        }
        if self._url.username is not None:
            pair = f"{unquote(self._url.username)}:{unquote(self._url.password or '')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        elif path := os.environ.get(TOKEN_FILE):
            try:
                token = Path(path).read_text(encoding="ascii").strip()
            except (OSError, ValueError):
                raise ExhumeError(f"the token in {printable(path)} ({TOKEN_FILE}) cannot be read") from None
            if not token.isprintable():
                raise ExhumeError(f"{printable(path)} ({TOKEN_FILE}) holds what no token may")
            headers["Authorization"] = f"Bearer {token}"
        return headers


def _checked(url: str) -> SplitResult:
    try:
        found = urlsplit(url)
        port = found.port
    except ValueError:
        found, port = urlsplit(""), None
    if found.scheme not in ("http", "https") or not found.hostname or port == 0 or not url.isprintable() or " " in url:
        raise UsageError(f"{printable(url.rpartition('@')[2])} is not the address of a Prometheus: say http://HOST:9090")
    return found


def _cut(start_s: float, end_s: float, step_s: float, most: int) -> list[tuple[float, float]]:
    """The range in pieces of at most so many points, which are the same points as those of the whole."""
    points = int((end_s - start_s) / step_s + 1e-9) + 1
    return [
        (start_s + first * step_s, start_s + (min(points, first + most) - 1) * step_s)
        for first in range(0, points, max(1, most))
    ]


def retry_after(value: str, now_s: float) -> float | None:
    """Seconds, from a number of them or from a date (RFC 9110, 10.2.3); None for what is neither."""
    value = value.strip()
    if value.isascii() and value.isdecimal():
        return float(value[:9])
    with suppress(ValueError, TypeError, IndexError, OverflowError):
        return max(0.0, parsedate_to_datetime(value).timestamp() - now_s)
    return None


def _clock(at_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(at_s))
