"""What an API server refuses, as sentences: one that names the verb and the resource where rights are missing."""

import re
from urllib.parse import unquote, urlsplit

from exhume.cluster.document import Document, list_in, text_in, within
from exhume.errors import ExhumeError
from exhume.host.http.retry import temporary
from exhume.text import printable

_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_USER = re.compile(r'User "((?:[^"\\]|\\.){1,300})" cannot ([\w:-]*)(?: resource "([a-z]{1,63})")?')


class Unreachable(ExhumeError):
    """The API server did not answer: it restarts, or something is between it and us."""


class ApiError(ExhumeError):
    """The API server answered, and refused."""

    def __init__(
        self,
        sentence: str,
        status: int,
        reason: str = "",
        retry_after_s: float = 0.0,
        causes: tuple[str, ...] = (),
        detail: str = "",
        goes_on: str = "",
    ) -> None:
        super().__init__(sentence)
        self.status, self.reason, self.retry_after_s, self.causes = status, reason, retry_after_s, causes
        self.detail = detail
        """What the first cause says, for people: the name of the disruption budget, for one."""
        self.goes_on = goes_on
        """Of a list whose next page has expired (410): where it goes on in a later state of the cluster."""


class Forbidden(ApiError):
    """RBAC gives too little. `verb` and `resource` are what a role has to name."""

    def __init__(self, sentence: str, verb: str, resource: str, causes: tuple[str, ...] = ()) -> None:
        super().__init__(sentence, 403, "Forbidden", causes=causes)
        self.verb, self.resource = verb, resource


def passing(error: ExhumeError) -> bool:
    """Whether the same may well work in a while: the API server restarts, is busy, or leads none of its peers."""
    return isinstance(error, Unreachable) or (isinstance(error, ApiError) and temporary(error.status))


def asked(method: str, target: str) -> tuple[str, str, str, str]:
    """Verb, group, resource and name as RBAC knows them, of a request. A path outside the API is its own resource."""
    parts = urlsplit(target)
    words = [unquote(word) for word in parts.path.split("/") if word]
    if words[:1] == ["api"] and len(words) > 2:
        group, rest = "", words[2:]
    elif words[:1] == ["apis"] and len(words) > 3:
        group, rest = words[1], words[3:]
    else:
        return _VERBS.get(method, method.lower()), "", parts.path, ""
    if rest[0] == "namespaces" and len(rest) > 2:
        rest = rest[2:]
    resource = rest[0] if len(rest) < 3 else f"{rest[0]}/{rest[2]}"
    name = rest[1] if len(rest) > 1 else ""
    verb = "list" if method == "GET" and not name else _VERBS.get(method, method.lower())
    return verb, group, resource, name


def refusal(method: str, target: str, status: int, told: Document, retry_after_s: float | None) -> ApiError:
    """`told` is the Status object that came with it, or an empty one."""
    verb, group, resource, name = asked(method, target)
    message, reason = text_in(told, "message"), text_in(told, "reason")
    causes = tuple(text_in(cause, "reason") for cause in list_in(told, "details", "causes"))
    what = f"{resource} {printable(name)}".rstrip()
    full = f"{resource} of {group}" if group else resource
    if status == 403 and "NamespaceTerminating" not in causes:
        user = _USER.search(message)
        who = printable(user[1]) if user else "this user"
        if user and user[2].startswith("impersonate"):
            # Not what we asked for is forbidden, but as whom. From 1.35 the verb may be impersonate-on:user-info:VERB of that.
            resource = full = user[3] if user[2] == "impersonate" and user[3] else "users"
            verb = "impersonate"
        sentence = (
            f"{who} may not {verb} {full} in this cluster: a role must give it the verb {verb} on {resource}"
            if user or not message
            else f"the API server forbids to {verb} {what}: {printable(message, 300)}"
        )
        return Forbidden(sentence, verb, resource, causes)
    if status == 401:
        return ApiError("the API server does not know these credentials: they are wrong, or have expired", 401, "Unauthorized")
    waits = within(told, "details", "retryAfterSeconds")
    after = retry_after_s if retry_after_s is not None else float(min(waits, 600)) if isinstance(waits, int) else 0.0
    said = printable(message, 300) or f"HTTP {status}"
    detail = next((printable(text_in(cause, "message"), 300) for cause in list_in(told, "details", "causes")), "")
    goes_on = text_in(told, "metadata", "continue")
    after = min(max(after, 0.0), 600.0)
    return ApiError(f"the API server could not {verb} {what}: {said}", status, reason, after, causes, detail, goes_on)
