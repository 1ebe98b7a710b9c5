"""A node fixed by a command: what it prints and how it ends say whether that is proven. No shell is between."""

import shlex
import subprocess
from typing import Any

from exhume.errors import UsageError
from exhume.fleet.waves import Result
from exhume.host.quantities import SECOND, duration
from exhume.text import decode, from_json, printable

_PROOF = "exhume.proof/"  # of any version: nodes may run another exhume, and all have `passed`
_MOST = 4 << 20


def arguments(template: str, node: str, target: str) -> list[str]:
    """The words as a shell would part them; {node} and {target} are filled in afterwards, so that each stays a word."""
    try:
        words = shlex.split(template)
    except ValueError as error:
        raise UsageError(f"--exec cannot be taken apart: {error}") from None
    if not words or not any("{node}" in word for word in words):
        raise UsageError(
            "--exec must be a command that has {node} in it, as 'ssh {node} sudo exhume fix {target} --apply --yes'"
        )
    return [word.replace("{node}", node).replace("{target}", target) for word in words]


def run(command: list[str], node: str, timeout_s: float) -> Result:
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return Result(node, "failed", f"it did not end within {duration(timeout_s * SECOND)}")
    except OSError as error:
        return Result(node, "failed", f"{command[0]} cannot be run: {error.strerror}")
    return judged(node, done.returncode, done.stdout[-_MOST:], done.stderr[-_MOST:])


def judged(node: str, code: int, printed: bytes, said: bytes) -> Result:
    proof = _proof(printed)
    last = printable(decode(said.strip().rpartition(b"\n")[2]) or decode(printed.strip().rpartition(b"\n")[2]), 300)
    if code == 0 and (proof is None or proof.get("passed") is True):
        return Result(node, "fixed", "it ended well, and the proof passed" if proof is not None else "it ended well")
    if code == 3 or (proof is not None and proof.get("passed") is None):
        return Result(node, "not proven", last or "it could not be judged whether it worked")
    return Result(node, "failed", f"exit code {code}" + (f": {last}" if last else ""))


def _proof(printed: bytes) -> dict[str, Any] | None:
    """The last proof among the JSON that was printed: a document, or a line of it."""
    for text in (printed, *reversed(printed.split(b"\n"))):
        if _PROOF.encode() not in text:
            continue
        try:
            found = from_json(text)
        except ValueError:
            continue
        proof = found.get("proof", found) if isinstance(found, dict) else None
        if isinstance(proof, dict) and str(proof.get("schema", "")).startswith(_PROOF):
            return proof
    return None
