"""What a pod says of itself: how it ended and when, what it died of, how many GPUs it asks for, whose it is."""

import re
from typing import Any, Final

from exhume.cluster.document import Document, list_in, names_in, seconds, text_in, within
from exhume.fleet.ray_jobs_log import LONGEST, died

_GPUS: Final = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "habana.ai/gaudi")
_MIG = re.compile(r"nvidia\.com/mig-(\d)g\.\d+gb")
# status.reason and the reasons of the condition DisruptionTarget (k8s.io/api/core/v1): somebody wanted the place.
_STOPPED: Final = frozenset({"Preempting", "PreemptionByScheduler"})


def outcome(pod: Document) -> str:
    phase = text_in(pod, "status", "phase")
    if phase == "Succeeded":
        return "succeeded"
    if phase != "Failed":
        return ""
    reasons = {text_in(pod, "status", "reason")} | {text_in(each, "reason") for each in _disrupted(pod)}
    return "stopped" if reasons & _STOPPED else "failed"


def _disrupted(pod: Document) -> list[Document]:
    conditions = list_in(pod, "status", "conditions")
    return [each for each in conditions if text_in(each, "type") == "DisruptionTarget" and text_in(each, "status") == "True"]


def _terminated(pod: Document) -> list[tuple[str, Document]]:
    """Containers that have ended, by name; what a container died of before it was started again where it runs now."""
    found = []
    for which in ("initContainerStatuses", "containerStatuses"):
        for each in list_in(pod, "status", which):
            for state in ("state", "lastState"):
                if isinstance(stopped := within(each, state, "terminated"), dict):
                    found.append((text_in(each, "name"), stopped))
                    break
    return found


def ended(pod: Document) -> float | None:
    if text_in(pod, "status", "phase") not in ("Succeeded", "Failed"):
        return None
    times = [seconds(text_in(each, "finishedAt")) for _, each in _terminated(pod)]
    # An evicted pod has no containers any more: when it was told to go, or when it was not ready any more.
    if not any(times):
        times = [seconds(text_in(each, "lastTransitionTime")) for each in _disrupted(pod)]
    if not any(times):
        conditions = list_in(pod, "status", "conditions")
        times = [seconds(text_in(each, "lastTransitionTime")) for each in conditions if text_in(each, "type") == "Ready"]
    return max((each for each in times if each is not None), default=None)


def error(pod: Document) -> str:
    """The kubelet's word for the pod (Evicted, NodeLost ...), else OOMKilled and the like, else what a container left."""
    if reason := text_in(pod, "status", "reason"):
        return words(reason, text_in(pod, "status", "message"))
    for each in _disrupted(pod):
        return words(text_in(each, "reason"), text_in(each, "message"))
    plain = ""
    for name, stopped in _terminated(pod):
        reason, code = text_in(stopped, "reason"), within(stopped, "exitCode")
        number = f"exit code {code}" if isinstance(code, int) and not isinstance(code, bool) else "no exit code"
        if reason not in ("", "Completed", "Error"):
            return words(reason, f"container {name}, {number}")
        if isinstance(code, int) and code != 0 and not plain:
            message = text_in(stopped, "message")
            plain = died(message).error or words("Error", f"container {name}, {number}")
    return plain


def gpus(pod: Document) -> float:
    """What it asks for: containers together, or the largest of those that run before them."""
    whole = sum(_asked(each) for each in list_in(pod, "spec", "containers"))
    return max([whole, *(_asked(each) for each in list_in(pod, "spec", "initContainers"))])


def _asked(container: Document) -> float:
    """Of extended resources requests and limits are equal, and either may be left out (core/v1: ResourceRequirements)."""
    wants = _table(container, "resources", "limits") | _table(container, "resources", "requests")
    whole = sum(_count(wants[name]) for name in _GPUS if name in wants)
    # A slice of a GPU counts by its compute: a 3g is three of seven.
    return whole + sum(_count(value) * int(slice_[1]) / 7 for name, value in wants.items() if (slice_ := _MIG.fullmatch(name)))


def _table(told: object, *way: str) -> dict[str, Any]:
    found = within(told, *way)
    return {key: value for key, value in found.items() if isinstance(key, str)} if isinstance(found, dict) else {}


def _count(value: object) -> float:
    """A whole number, as text or not: extended resources have no fractions."""
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    return float(text) if text.isascii() and text.isdecimal() and len(text) <= 6 else 0.0


def controller(told: Document) -> tuple[str, str]:
    """Kind and name of what controls it; of a pod whose references are gone, the Job that its label names."""
    for each in list_in(told, "metadata", "ownerReferences"):
        if within(each, "controller") is True:
            return text_in(each, "kind"), text_in(each, "name")
    labels = names_in(told, "metadata", "labels")
    name = labels.get("batch.kubernetes.io/job-name") or labels.get("job-name") or ""
    return ("Job", name) if name and text_in(told, "kind") == "Pod" else ("", "")


def place(told: Document) -> tuple[str, str]:
    return text_in(told, "metadata", "namespace") or "default", text_in(told, "metadata", "name") or "(nameless)"


def words(reason: str, message: str) -> str:
    first = message.strip().partition("\n")[0]
    return (f"{reason}: {first}" if reason and first else reason or first)[:LONGEST]
