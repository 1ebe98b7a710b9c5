"""How a Job stands and how its pod ended, read from what the API server says of them. Pure."""

from dataclasses import dataclass

from exhume.cluster.document import Document, list_in, text_in, within
from exhume.fleet.waves import Result
from exhume.fleet.waves_command import judged
from exhume.fleet.waves_job import MEMORY_MIB
from exhume.host.quantities import MIB, SECOND, duration, size
from exhume.text import printable

# What a container that does not begin is said to wait for (kubelet, pkg/kubelet/images/types.go and container/sync_result.go):
# from these nothing but another image or another manifest leads on.
_HOPELESS = (
    "ErrImageNeverPull",
    "ImagePullBackOff",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
)
_HEADS = (b"PASSED  ", b"FAILED  ", b"OPEN  ")  # cli/verify_text.py
_OURS = b"exhume: "


@dataclass(frozen=True, slots=True)
class Ended:
    complete: bool
    reason: str = ""
    message: str = ""


def ended(job: Document) -> Ended | None:
    """None while it runs (batch/v1, JobConditionType)."""
    for condition in list_in(job, "status", "conditions"):
        kind = text_in(condition, "type")
        if text_in(condition, "status") == "True" and kind in ("Complete", "Failed"):
            return Ended(kind == "Complete", text_in(condition, "reason"), text_in(condition, "message"))
    return None


def begun(pod: Document) -> bool:
    return text_in(pod, "status", "phase") not in ("", "Pending")


def stuck(pod: Document) -> str:
    """Why its container cannot begin, if nothing but somebody's hand can help."""
    for status in list_in(pod, "status", "containerStatuses"):
        waiting = within(status, "state", "waiting")
        if (reason := text_in(waiting, "reason")) in _HOPELESS:
            return _told(reason, text_in(waiting, "message"))
    return ""


def waits_for(pod: Document) -> str:
    """What is known of a pod that does not begin."""
    for status in list_in(pod, "status", "containerStatuses"):
        if reason := text_in(status, "state", "waiting", "reason"):
            return _told(reason, text_in(status, "state", "waiting", "message"))
    for condition in list_in(pod, "status", "conditions"):
        if text_in(condition, "status") == "False" and text_in(condition, "message"):
            return _told(text_in(condition, "reason"), text_in(condition, "message"))
    return "the kubelet of the node has not taken it up"


def result(node: str, end: Ended, pod: Document | None, log: bytes, timeout_s: float) -> Result:
    """What became of the node: by the exit code of its container, and what it printed."""
    if end.reason == "DeadlineExceeded":
        return Result(node, "failed", f"it did not end within {duration(timeout_s * SECOND)} and was ended")
    terminated = _terminated(pod)
    if text_in(terminated, "reason") == "OOMKilled":
        return Result(node, "failed", f"it was killed because it used more than {size(MEMORY_MIB * MIB)}")
    code = within(terminated, "exitCode")
    if isinstance(code, int) and not isinstance(code, bool):
        # A Job that the cluster calls complete and a container that did not end with 0 cannot both be: the worse is believed.
        code = code if code or end.complete else 1
        printed = log or text_in(terminated, "message").encode("utf-8", "backslashreplace")
        return judged(node, code, printed, sentence(printed))
    why = _told(text_in(pod, "status", "reason") or end.reason, text_in(pod, "status", "message") or end.message)
    if end.complete:
        return Result(node, "not proven", "the Job ended well, and its pod is gone: nothing says what it did")
    return Result(node, "failed", f"its pod did not run: {why}" if why else "the Job failed, and nothing says why")


def sentence(printed: bytes) -> bytes:
    """The line of a log that says how it went: our own last complaint, else the head of the proof; the kubelet mixes what
    goes to stdout and to stderr. Empty where there is neither."""
    lines = [line.strip() for line in printed.split(b"\n")]
    for begins in ((_OURS,), _HEADS):
        if found := [line for line in lines if line.startswith(begins)]:
            return found[-1].removeprefix(_OURS)
    return b""


def _terminated(pod: Document | None) -> Document:
    for status in list_in(pod, "status", "containerStatuses"):
        found = within(status, "state", "terminated")
        if isinstance(found, dict):
            return found
    return {}


def _told(reason: str, message: str) -> str:
    said = printable(message, 200)
    return f"{printable(reason, 60)}: {said}" if reason and said else printable(reason, 60) or said
