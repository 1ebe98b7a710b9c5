"""A client of Prometheus' query API that expects the worst: slow or partial replies, 429 and 503, queries that are too large.

A query has a deadline; one that is too large is sent in halves; `troubles` holds a sentence for each problem on the way.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from urllib.parse import parse_qsl, urlencode

from exhume.errors import ExhumeError, UsageError
from exhume.fleet.prometheus_reply import Refusal, Reply, Series, joined, parse
from exhume.host.http import client as http
from exhume.host.http.address import split_url
from exhume.host.http.retry import backoff_s
from exhume.host.quantities import SECOND, compact, counted, duration
from exhume.text import printable

TIMEOUT_S = 60.0
ATTEMPTS = 6
BUDGET_S = 300.0
"""To be spent on waiting, over all questions."""
LIMIT_BYTES = 256 << 20
# web/api/v1/api.go: "exceeded maximum resolution of 11,000 points per timeseries".
MOST_POINTS = 10_000
TOKEN_FILE = "EXHUME_PROMETHEUS_TOKEN_FILE"
_MOST_WARNINGS = 5


class Client:
    def __init__(
        self,
        url: str,
        timeout_s: float = TIMEOUT_S,
        attempts: int = ATTEMPTS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        try:
            self._url = split_url(url)
        except ValueError:
            shown = printable(url.rpartition("@")[2])
            raise UsageError(f"{shown} is not the address of a Prometheus: say http://HOST:9090") from None
        self._http = http.Client(url, timeout_s=timeout_s, limit_bytes=LIMIT_BYTES)
        self._timeout_s, self._attempts, self._sleep = timeout_s, attempts, sleep
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
        said = [f"{what} ({counted(number, 'time')})" for what, number in self._counted.items()]
        warned = [
            f"it warns: {text} ({counted(number, 'time')})" for text, number in self._warnings.most_common(_MOST_WARNINGS)
        ]
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
            after_s: float | None = None
            try:
                answer = self._exchange(what, query)
                after_s = answer.retry_after_s
                reply = parse(answer.status, answer.body)
                self._warnings.update(reply.warnings)
                return reply
            except Refusal as refusal:
                if refusal.trouble != "again":
                    raise
                failed = refusal
            except http.RequestError as error:
                failed = self._failure(error, attempt)
                if failed.trouble != "again":
                    raise failed from None
            wait_s = backoff_s(attempt, after_s)
            if attempt + 1 == self._attempts or self._waited_s + wait_s > BUDGET_S:
                break
            self._counted[f"had to be asked again: {failed}"] += 1
            self._waited_s += wait_s
            self._sleep(wait_s)
        raise Refusal("never", f"asked {attempt + 1} times in vain: {failed}")

    def _failure(self, error: http.RequestError, attempt: int) -> Refusal:
        if error.kind == "size" or (error.kind == "timeout" and attempt > 0):
            return Refusal("too much", str(error))  # too slow twice: ask for less
        # A server that has answered before may come back.
        away = error.kind in ("connect", "proxy") and not self._answered
        return Refusal("never" if away or error.kind in ("settings", "certificate") else "again", str(error))

    def _exchange(self, what: str, query: Mapping[str, str]) -> http.Reply:
        target = f"{self._url.path.rstrip('/')}/api/v1/{what}"
        form = urlencode({**query, "timeout": compact(round(self._timeout_s * SECOND))})
        own = urlencode(parse_qsl(self._url.query))  # the query of the address (a tenant ...) goes along
        headers = [("Accept", "application/json"), *self._authorization()]
        if self._form:
            headers.append(("Content-Type", "application/x-www-form-urlencoded"))
            reply = self._http.request("POST", f"{target}?{own}" if own else target, headers, form.encode("ascii"))
        else:
            reply = self._http.request("GET", f"{target}?{form}{'&' * bool(own)}{own}", headers)
        self._answered = True
        if reply.status == 405 and self._form:
            self._form = False
            return self._exchange(what, query)
        return reply

    def _authorization(self) -> list[tuple[str, str]]:
        """A name and a password in the address win: the HTTP client sends them."""
        path = os.environ.get(TOKEN_FILE)
        return [("Authorization", f"Bearer {http.read_token(path)}")] if path and self._url.username is None else []


def _cut(start_s: float, end_s: float, step_s: float, most: int) -> list[tuple[float, float]]:
    """The range in pieces of at most so many points, which are the same points as those of the whole."""
    points = int((end_s - start_s) / step_s + 1e-9) + 1
    return [
        (start_s + first * step_s, start_s + (min(points, first + most) - 1) * step_s)
        for first in range(0, points, max(1, most))
    ]


def _clock(at_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(at_s))
