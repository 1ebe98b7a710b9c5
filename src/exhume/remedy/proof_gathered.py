"""What the checklist goes by, gathered: the live node, the flight recorder's folder, what was kept of audit, proof and policy.

Each source is asked by itself. One that is not there, or is not readable, leaves its reason and nothing else fails.
"""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from exhume import budget
from exhume.diagnosis.findings.leak_places import named, zombie_counts
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.report import wall
from exhume.errors import ExhumeError
from exhume.host.cgroups import Tree
from exhume.host.root import Root
from exhume.image import policy
from exhume.recorder.recorder import record_zombies
from exhume.remedy import carry_out, proof
from exhume.remedy.node import Node
from exhume.remedy.operations import Operations
from exhume.remedy.proof_checklist import Known
from exhume.remedy.proof_units import states
from exhume.sources.facts import facts
from exhume.text import from_json

STATE = "/var/lib/exhume"
PROOF, AUDIT = "proof.json", "audit.json"
LARGEST = 64 << 20


def gathered(
    root: Root,
    folder: str,
    thresholds: Thresholds,
    state: str = STATE,
    audit_file: str | None = None,
    proof_file: str | None = None,
    policy_file: str | None = None,
    progress: Callable[[float], None] | None = None,
) -> Known:
    """Files that were named must be there and be what they should be; those that are only looked for need not."""
    known = Known(thresholds=thresholds)
    for name, learn in (
        ("cgroups", lambda _: _cgroups(root)),
        ("zombies", lambda _: _zombies(root)),
        ("report", lambda _: _recorded(folder, thresholds, progress)),
        ("units", lambda so_far: {"units": states(root, so_far.culprits)}),
        ("audit", lambda _: {"audit": _audit(audit_file or os.path.join(state, AUDIT))}),
        ("proof", lambda _: {"proof": _proof(proof_file or os.path.join(state, PROOF))}),
        ("policy", lambda _: {"policy": _policy(policy_file)}),
        ("done", lambda _: _applications(root)),
    ):
        try:
            known = replace(known, **learn(known))
        except ExhumeError as error:
            if (name, True) in (("audit", bool(audit_file)), ("proof", bool(proof_file)), ("policy", bool(policy_file))):
                raise
            known.why[name] = str(error)
    return known


def _cgroups(root: Root) -> dict[str, Any]:
    tree = Tree(root)
    memory = tree.layout.of("memory")
    return {"cgroups": facts(root, tree.layout).cgroups, "memory_at": f"/{memory.path.lstrip('/')}" if memory else ""}


def _zombies(root: Root) -> dict[str, Any]:
    recording = record_zombies(root)
    places, total = named(recording)
    walked, live = recording.counter("memcg_walk_zombies"), recording.counter("memcg_walk_live")
    counts = zombie_counts(recording)
    zombies = total or (walked.last if walked is not None else counts[-1][1] if counts else None)
    alive = live.last if live is not None else counts[-1][2] if counts else 0
    return {"zombies": zombies, "live": alive, "places": tuple((place.path, place.zombies) for place in places[:3])}


def _recorded(path: str, thresholds: Thresholds, progress: Callable[[float], None] | None) -> dict[str, Any]:
    """The last incident of this boot, or of the one before where this one has none."""
    from exhume.diagnosis.diagnose import diagnose_folder
    from exhume.recording.folder import Folder  # ExhumeError where pyarrow is not installed: the rest works without

    for boot in (0, -1):
        try:
            folder = Folder(path, boot)
        except ExhumeError:
            if boot:
                break
            raise
        report = diagnose_folder(folder, thresholds, progress=progress)
        start, end = folder.window
        found: dict[str, Any] = {"report": report, "recorded_h": (end - start) / 3600e9}
        if report.incidents:
            last = max(one.end for one in report.incidents)
            return found | {"incident_end": wall(folder.load(last - 10**9, last + 10**9, ("anchors",)), last)}
        if not boot:
            first = found
    return first


def _audit(path: str) -> dict[str, Any]:
    document = _json(path, "no audit is kept")
    if not str(document.get("schema", "")).startswith("exhume.audit/"):
        raise ExhumeError(f"{path} is no audit: exhume audit --json makes one")
    return document


def _proof(path: str) -> proof.Proof:
    return proof.from_json(_json(path, "no proof is kept"))


def _policy(path: str | None) -> policy.Policy:
    if path is None:
        raise ExhumeError("no policy was named (--policy)")
    return policy.parse(_read(path, "no policy"), path)


def _applications(root: Root) -> dict[str, Any]:
    """What stands of what was done, and what was begun and not ended. Of a journal that cannot be read neither is known."""
    every = carry_out.history(Node(root, None, Operations()))
    standing = [one for one in every if one.status in ("applied", "partly undone")]
    texts = [(one.identity, " ".join((one.plan.target, *(step.target for step in one.plan.steps)))) for one in standing]
    found: dict[str, Any] = {"done": tuple(texts[-20:])}
    hanging = next((one for one in reversed(every) if not one.finished), None)
    if hanging is not None:
        found["unfinished"] = (hanging.identity, hanging.plan.target, hanging.status)
    return found


def _json(path: str, missing: str) -> dict[str, Any]:
    try:
        document = from_json(_read(path, missing))
    except ValueError:
        raise ExhumeError(f"{path} is not JSON") from None
    if not isinstance(document, dict):
        raise ExhumeError(f"{path} is not what exhume writes: there is no object in it")
    return document


def _read(path: str, missing: str) -> bytes:
    try:
        raw = budget.read(path, LARGEST)
    except FileNotFoundError:
        raise ExhumeError(f"{missing}: there is no {path}") from None
    except OSError as error:
        raise ExhumeError(f"{path} cannot be read: {error.strerror}") from None
    if len(raw) > LARGEST:
        raise ExhumeError(f"{path} is too large for what it should be")
    return raw


def keep(made: proof.Proof, state: str = STATE) -> str:
    """Writes the proof down for the checklist and for the history, where the node has a place for it; where to, or nothing."""
    path = os.path.join(state, PROOF)
    temporary = f"{path}.part-{os.getpid()}"
    try:
        with open(temporary, "x") as file:
            json.dump(proof.as_json(made), file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        return ""
    return path


def keep_with(made: proof.Proof, node: Node, identity: str = "") -> str:
    """Writes the proof into the journal of what it proves: of the application that is named, or of the last one. Which one it
    was; nothing where none stands, or where its last proof came to the same."""
    about = identity or _unproven(node, made.passed)
    if about:
        carry_out.add_note(node, about, "proof", proof.as_json(made))
    return about


def _unproven(node: Node, passed: bool | None) -> str:
    last = next(reversed(carry_out.readable(node)[0]), None)
    if last is None or last.status != "applied" or not last.begun:
        return ""
    proofs = [value for name, value in last.notes if name == "proof" and isinstance(value, dict)]
    return last.identity if not proofs or proofs[-1].get("passed") is not passed else ""
