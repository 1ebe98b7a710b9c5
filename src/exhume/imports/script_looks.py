"""Whether a text is that of perf script, and what is said to one that is something else of perf's."""

import re

from exhume.imports import script_frames, script_sample

_LOOKED = 400
_FRAMES = 3
_DUMP = re.compile(rb"0x[0-9a-f]+(?:@\S+)? \[0x[0-9a-f]+\]: event: \d+", re.ASCII)
_REPORT = (b"# Overhead ", b"# Total Lost Samples:", b"# To display the perf.data header info", b"# Samples: ")


def looks(head: bytes) -> bool:
    if b"\0" in head:
        return False
    weak = other = 0
    for line in _lines(head):
        if line.startswith((b"# captured on ", b"# cmdline : ")):
            return True
        if not line or line.startswith((b"#", b"\t")):
            continue
        sample = script_sample.parse(line)
        if sample is None:
            other += 1
            continue
        if len(sample.who.comm) <= 15 or sample.who.comm.startswith(b"kworker/"):
            if sample.who.tid != -1:
                return True
            weak += 1
    # Without numbers of threads (-F comm,time) a line says little, so nearly all must be such.
    return weak > 10 * other or bool(refusal(head))


def refusal(head: bytes) -> str:
    """What is wrong with the text of perf that this begins; "" where nothing is known to be."""
    frames = 0
    for line in _lines(head):
        if line.startswith(_REPORT):
            return "is what perf report prints, sums without the samples themselves; perf script prints those"
        if line.startswith(b"# tracer: "):
            return "is what ftrace prints, which is not read; of perf.data and the text of perf script samples are taken"
        if _DUMP.match(line):
            return "is a dump of all records, as perf script -D prints; perf script without -D prints samples"
        if line.startswith(b"\t"):
            frame = script_frames.parse(line)
            frames += frame is not None and bool(frame.name or frame.module)
        elif script_sample.parse(line) is not None:
            return ""
    if frames < _FRAMES:
        return ""
    return (
        "has stacks of perf script, but no times: it was printed with a choice of fields that leaves them out; print it "
        "without -F, or with time among its fields (-F comm,pid,tid,cpu,time,period,event,ip,sym,dso)"
    )


def _lines(head: bytes) -> list[bytes]:
    """The first that are whole."""
    lines = head.split(b"\n", _LOOKED)
    return [line.rstrip() for line in (lines[:-1] if len(lines) > 1 else lines)]
