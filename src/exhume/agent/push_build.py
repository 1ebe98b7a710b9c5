"""The child that makes one profile of a recording and puts it into the spool: numpy and Arrow are its, not the agent's.

Asked by JSON in its one argument; prints a line of JSON. At low priority, and gone when the agent is (host/children.py).
"""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from exhume.agent.push_profile import Rows, Tenant, rows
from exhume.agent.spool import Kind, Parcel, Spool
from exhume.errors import ExhumeError
from exhume.exports.subject import Subject
from exhume.host.owners import Owner
from exhume.host.quantities import size
from exhume.text import from_json


@dataclass(frozen=True, slots=True)
class Order:
    """What to make. Times are on the recording's clock; the end is outside."""

    recording: str
    spool: str
    budget_bytes: int
    kind: Kind
    name: str
    start: int
    end: int
    host: str
    namespaces: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]

    def text(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Made:
    """`file` is its name in the spool, "" where there was nothing to push."""

    file: str = ""
    samples: int = 0
    withheld: int = 0
    bytes: int = 0


def order(text: str) -> Order:
    raw: dict[str, Any] = from_json(text)
    return Order(
        **{**raw, "namespaces": tuple(raw["namespaces"]), "labels": tuple((key, value) for key, value in raw["labels"])}
    )


def build(asked: Order) -> Made:
    from exhume.recording.folder import Folder

    folder = Folder(asked.recording)
    first, last = folder.window
    start, end = max(asked.start, first), min(asked.end, last + 1)
    if start >= end:
        return Made()
    tally, dictionaries = folder.profile(start, end)
    made = rows(tally, dictionaries, asked.namespaces, _looking(asked))
    if not made.samples:
        return Made()
    hz, event = folder.about.get("hz"), folder.about.get("event")
    rate = hz if isinstance(hz, int) and hz > 0 else 0
    subject = Subject(folder.node, rate, event if isinstance(event, str) else "", start, end, folder.real_ns(start))
    body = encoded(asked, made, subject)
    if len(body) > asked.budget_bytes:
        raise ExhumeError(f"a profile of {size(len(body))} is larger than all that may wait: raise agent.push.spool_mib")
    labels = (("node", folder.node.hostname), *asked.labels)
    parcel = Parcel(asked.kind, asked.name, subject.start_real, subject.start_real + end - start, rate, labels, body)
    return Made(Spool(asked.spool, asked.budget_bytes).add(parcel), made.samples, made.withheld, len(body))


def encoded(asked: Order, made: Rows, subject: Subject) -> bytes:
    parts: list[bytes] = []
    if asked.kind == "otlp":
        from exhume.exports import otlp

        resource = (("service.name", asked.name), ("host.name", subject.node.hostname), *asked.labels)
        otlp.write_rows(parts.append, made.rows, made.frames, subject, resource)
    else:
        from exhume.exports import pprof

        common = (("node", subject.node.hostname), *asked.labels)
        labelled = (row._replace(labels=(*common, *row.labels)) for row in made.rows)
        pprof.write_rows(parts.append, labelled, made.frames, subject)
    return b"".join(parts)


def _looking(asked: Order) -> Callable[[Owner], Tenant]:
    """What the runtime's and the kubelet's files say; nothing is asked over a socket."""
    from exhume.host.root import Root
    from exhume.sources.container_state import Containers

    containers = Containers(Root(asked.host))

    def look(whose: Owner) -> Tenant:
        state = containers.describe(whose)
        # A namespace without a pod is no pod's: what is guessed of a container that is gone is not enough to let it out.
        return Tenant(state.namespace if state.pod else "", state.pod, state.name)

    return look


def main() -> int:
    try:
        print(json.dumps(asdict(build(order(sys.argv[1])))))
    except (ExhumeError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
