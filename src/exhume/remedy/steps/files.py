"""Steps on files and links: drop-ins, presets, and the links that enable and mask units."""

import difflib
from dataclasses import replace

from exhume.errors import Refused
from exhume.host.quantities import size
from exhume.remedy.files import LARGEST, changed, new_file, new_link
from exhume.remedy.found import ABSENT, Found, from_json, mark, same, to_json
from exhume.remedy.node import Node
from exhume.remedy.plan_model import Risk, Step
from exhume.remedy.steps.kind import ON_DISK, State
from exhume.text import decode, printable


def write_file(path: str, content: bytes, reason: str, risk: Risk = "low", mode: int | None = None) -> Step:
    return Step("write-file", path, reason, risk, content=content, mode=mode)


def make_link(path: str, link: str, reason: str, risk: Risk = "low", over_file: bool = False) -> Step:
    return Step("make-link", path, reason, risk, link=link, over_file=over_file)


def remove_link(path: str, link: str, reason: str, risk: Risk = "low") -> Step:
    """Only the link that leads there, as it is written in it; an empty `link` is any."""
    return Step("remove-link", path, reason, risk, link=link)


class OnDisk:
    """One path becomes something else. The kinds differ in what they want there, and what they take for theirs to change."""

    name = ""
    undoable = True
    undo_rank = ON_DISK
    offline = True

    def wanted(self, step: Step, before: Found) -> Found:
        """What is to be there; Refused where what is there is not what this kind changes."""
        raise NotImplementedError

    def preview(self, step: Step, node: Node) -> str:
        before = node.files.look(step.target)
        return difference(step.target, before, self.wanted(step, before))

    def mark(self, step: Step, node: Node) -> str:
        return mark(node.files.look(step.target))

    def done(self, step: Step, node: Node) -> bool:
        before = node.files.look(step.target)
        return same(before, self.wanted(step, before))

    def before(self, step: Step, node: Node) -> State:
        found = node.files.look(step.target)
        self.wanted(step, found)
        return {"found": to_json(found), "missing": list(node.files.missing_parents(step.target))}

    def apply(self, step: Step, node: Node, before: State, token: str) -> str:
        was = from_json(before.get("found"))
        wanted = self.wanted(step, was)
        files = node.files
        files.clear(step.target, token)
        now = files.look(step.target)
        if not same(now, wanted):
            if not same(now, was):
                raise Refused(f"{_shown(step.target)} is left alone: somebody changed it after the step was begun")
            files.put(step.target, wanted, token)
        for path in _made(step, before):
            files.sync_above(path)
        return ""

    def undo(self, step: Step, node: Node, before: State, token: str) -> str:
        was = from_json(before.get("found"))
        files = node.files
        files.clear(step.target, token)
        now = files.look(step.target)
        if not same(now, was):
            if not same(now, self.wanted(step, was)):
                raise Refused(f"{_shown(step.target)} is left as it is: somebody changed it since it was written here")
            files.put(step.target, was, token)
        for path in reversed(_made(step, before)):
            if not files.remove_directory(path):
                return f"the directory {_shown(path)} stays: there is something of others in it"
        return ""


def _made(step: Step, before: State) -> list[str]:
    """The directories above the target that were not there before, outermost first; no others, whatever a journal says."""
    missing = before.get("missing")
    every = [str(path) for path in missing] if isinstance(missing, list) else []
    return [path for path in every if step.target.startswith(f"{path}/")]


class WriteFile(OnDisk):
    name = "write-file"

    def wanted(self, step: Step, before: Found) -> Found:
        if len(step.content) > LARGEST:
            raise Refused(f"{_shown(step.target)} is not written: {size(len(step.content))} are more than any configuration")
        if before.kind == "absent":
            return new_file(step.content, 0o644 if step.mode is None else step.mode)
        if before.kind != "file":
            raise _not(step, before, "a file")
        return changed(before, step.content, before.mode if step.mode is None else step.mode)


class MakeLink(OnDisk):
    name = "make-link"

    def wanted(self, step: Step, before: Found) -> Found:
        if not step.link or "\0" in step.link:
            raise Refused(f"{_shown(step.target)} is not made: a link must lead somewhere")
        if before.kind == "absent" or (before.kind == "file" and step.over_file):
            return new_link(step.link)
        if before.kind != "link":
            raise _not(step, before, "a link")
        return before if before.target == step.link else replace(before, target=step.link, mtime_ns=None)


class RemoveLink(OnDisk):
    name = "remove-link"

    def wanted(self, step: Step, before: Found) -> Found:
        if before.kind not in ("absent", "link"):
            raise _not(step, before, "a link")
        if before.kind == "link" and step.link and before.target != step.link:
            raise Refused(
                f"{_shown(step.target)} is left alone: it leads to {_shown(before.target)}, not to {_shown(step.link)}"
            )
        return ABSENT


def difference(path: str, before: Found, after: Found) -> str:
    """A unified diff; what a link leads to and the mode are told in its head."""
    if same(before, after):
        return ""
    head = [f"--- {_shown(path)}{_told(before, after)}", f"+++ {_shown(path)}{_told(after, before)}"]
    lines = difflib.unified_diff(_lines(before), _lines(after), lineterm="")
    return "\n".join([*head, *list(lines)[2:]]) + "\n"


def _told(found: Found, other: Found) -> str:
    if found.kind == "link":
        return f"  (link to {_shown(found.target)})"
    if found.kind != "file":
        return "  (not there)"
    whose = (
        f", owner {found.uid}:{found.gid}" if other.kind == "file" and (found.uid, found.gid) != (other.uid, other.gid) else ""
    )
    return f"  (mode {found.mode:04o}{whose})"


def _lines(found: Found) -> list[str]:
    """For people: hostile bytes escaped, and a missing newline at the end told as diff(1) does."""
    if not found.content:
        return []
    lines = [printable(decode(line), 2000) for line in found.content.split(b"\n")]
    if lines[-1]:
        return [*lines, "\\ No newline at end of file"]
    return lines[:-1]


def _not(step: Step, before: Found, what: str) -> Refused:
    kind = {"link": "a link", "file": "a file"}.get(before.kind, "something else")
    return Refused(f"{_shown(step.target)} is left alone: there is {kind}, not {what}")


def _shown(path: str) -> str:
    return printable(path)
