"""Kernel logs in somebody else's dress: what container runtimes and kubectl put before each line, grep's names of files,
Docker's JSON, and the records of /dev/kmsg as they are. Made into lines as dmesg or syslog have them.

The time in such a prefix is when the line was printed, not when the kernel said it, so it is of no use.
"""

import re

from exhume.text import from_json

_MONTH = rb"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
# What a line of dmesg or syslog begins with.
_BEGIN = (
    rb"(?=\[ *\d{1,9}\.\d{6}\]|<\d{1,3}>(?:\[|1 |"
    + _MONTH
    + rb")|\[[A-Z][a-z]{2} "
    + _MONTH
    + rb" |"
    + _MONTH
    + rb" [ \d]\d \d\d:\d\d:\d\d )"
)
# kubectl logs --prefix; the runtimes' form (CRI) or kubectl logs --timestamps; grep -H and -n.
_PREFIX = re.compile(
    rb"^(?:\[pod/[^\s\]]{1,512}\] )?"
    rb"(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d) (?:std(?:out|err) [FP] )?"
    rb"|[\w./-]{1,255}:(?:\d{1,9}:)?)?" + _BEGIN,
    re.MULTILINE,
)
_DOCKER = re.compile(rb'^\{"log": ?"((?:[^"\\\n]|\\.)*)"(?:, ?"[^\n]*)?\}\r?$', re.MULTILINE)
# Documentation/ABI/testing/dev-kmsg: priority, sequence, microseconds, flags and more; lines set in by a blank tell the device.
_KMSG = re.compile(rb"^(\d{1,4}),\d{1,20},(\d{1,15}),[^;\n]{0,256};", re.MULTILINE)
_DEVICE = re.compile(rb"^ [A-Z][A-Z0-9_]{0,63}=[^\n]*\n?", re.MULTILINE)
_LOOKED = 200


def kind(head: bytes) -> str:
    """What is around most of the first lines: kmsg, docker, prefix; "" for nothing."""
    lines = [line for line in head.split(b"\n")[:_LOOKED] if line.strip() and not _DEVICE.match(line)]
    for name, form in (("kmsg", _KMSG), ("docker", _DOCKER), ("prefix", _PREFIX)):
        if sum(1 for line in lines if (found := form.match(line)) and found.end()) * 2 > len(lines):
            return name
    return ""


def plain(kind: str, block: bytes) -> bytes:
    """The lines without it."""
    if kind == "kmsg":
        return _KMSG.sub(_record, _DEVICE.sub(b"", block))
    if kind == "docker":
        return _DOCKER.sub(_logged, block)
    return _PREFIX.sub(b"", block) if kind == "prefix" else block


def _record(found: re.Match[bytes]) -> bytes:
    return b"<%b>[%5d.%06d] " % (found[1], *divmod(int(found[2]), 1_000_000))


def _logged(found: re.Match[bytes]) -> bytes:
    try:
        text = from_json(b'"' + found[1] + b'"')
    except ValueError:
        return found[0]
    return text.encode("utf-8", "backslashreplace").rstrip(b"\n") if isinstance(text, str) else found[0]
