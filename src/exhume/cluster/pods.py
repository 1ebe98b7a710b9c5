"""What a drain does with each pod of a node: evict it, wait for it, leave it, or not begin at all because of it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from exhume.cluster.document import Document, list_in, names_in, text_in, within
from exhume.text import printable

Fate = Literal["evict", "wait", "leave", "blocks"]

# What a static pod looks like from the API server (kubelet, ConfigMirrorAnnotationKey). The kubelet runs it from a file.
_MIRROR = "kubernetes.io/config.mirror"
# Karpenter, "Disruption"; before v1beta1 it was called do-not-evict.
_DO_NOT_DISRUPT = ("karpenter.sh/do-not-disrupt", "karpenter.sh/do-not-evict")
# cluster-autoscaler FAQ, "What types of pods can prevent CA from removing a node?"
_SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
# Kinds that put another pod in the place of one that is evicted and lose nothing by it; all others may be somebody's run.
_SERVICES = ("ReplicaSet", "ReplicationController", "StatefulSet", "Deployment")
# What device plugins call accelerators, or how the names begin: NVIDIA (whole, shared, MIG), AMD, Intel, Gaudi, Neuron, TPU.
_ACCELERATORS = (
    "nvidia.com/gpu",
    "nvidia.com/mig-",
    "amd.com/gpu",
    "gpu.intel.com/",
    "habana.ai/gaudi",
    "aws.amazon.com/neuron",
    "google.com/tpu",
)


@dataclass(frozen=True, slots=True)
class Allowed:
    """What whoever asked for the drain agreed to."""

    unmanaged: bool = False
    """Evict pods that nothing makes again."""
    empty_dir: bool = False
    """Evict pods whose emptyDir volumes are lost with them."""
    when_idle: bool = False
    """Wait for jobs, and for whatever is not to be disrupted, to end by themselves."""


@dataclass(frozen=True, slots=True)
class Pod:
    namespace: str
    name: str
    uid: str
    fate: Fate
    why: str = ""
    run: bool = False
    """Whether it is somebody's run, which others keep company while a drain waits for it."""

    def __str__(self) -> str:
        return printable(f"{self.namespace}/{self.name}")


def sorted_out(pods: Sequence[Document], allowed: Allowed) -> tuple[Pod, ...]:
    return tuple(one_pod(pod, allowed) for pod in pods)


def one_pod(pod: Document, allowed: Allowed) -> Pod:
    fate, why = _fate(pod, allowed)
    meta = ("metadata",)
    names = text_in(pod, *meta, "namespace"), text_in(pod, *meta, "name"), text_in(pod, *meta, "uid")
    return Pod(*names, fate, why, is_job(pod) or bool(not_to_be_disrupted(pod)))


def _fate(pod: Document, allowed: Allowed) -> tuple[Fate, str]:
    annotations = names_in(pod, "metadata", "annotations")
    controller = controller_of(pod)
    if _MIRROR in annotations:
        return "leave", "a static pod, which the kubelet runs from a file"
    if text_in(pod, "status", "phase") in ("Succeeded", "Failed"):
        return "leave", "it has ended"
    if controller == "DaemonSet":
        return "leave", "a daemon set's, which would put it there again at once"
    if since := text_in(pod, "metadata", "deletionTimestamp"):
        return "wait", _being_deleted(pod, since)
    if kept := not_to_be_disrupted(pod):
        return ("wait" if allowed.when_idle else "blocks"), kept
    if allowed.when_idle and is_job(pod):
        return "wait", f"a run of {controller or 'nobody'} that ends by itself"
    if not controller and not allowed.unmanaged:
        return "blocks", "nothing would make it again (--unmanaged evicts it)"
    if not allowed.empty_dir and any("emptyDir" in one for one in list_in(pod, "spec", "volumes")):
        return "blocks", "its emptyDir volumes would be lost (--empty-dir evicts it)"
    return "evict", f"{controller or 'nothing'} makes it again" if controller else "nothing makes it again, which was agreed to"


def _being_deleted(pod: Document, due: str) -> str:
    """deletionTimestamp is when its grace ends. One with finalizers goes when whoever put them there has taken them away."""
    finalizers = within(pod, "metadata", "finalizers")
    names = ", ".join(printable(one, 80) for one in finalizers if isinstance(one, str)) if isinstance(finalizers, list) else ""
    return f"it is being deleted (due {printable(due, 30)})" + (f", and held by the finalizer {names}" if names else "")


def controller_of(pod: Document) -> str:
    """The kind of the owner that makes it again; nothing for a pod that somebody made by hand."""
    owners = list_in(pod, "metadata", "ownerReferences")
    return next((printable(text_in(one, "kind"), 63) for one in owners if one.get("controller") is True), "")


def not_to_be_disrupted(pod: Document) -> str:
    annotations = names_in(pod, "metadata", "annotations")
    for name in _DO_NOT_DISRUPT:
        if annotations.get(name, "false") not in ("false", ""):
            return f"it is annotated {name}: {printable(annotations[name], 20)}"
    if annotations.get(_SAFE_TO_EVICT) == "false":
        return f'it is annotated {_SAFE_TO_EVICT}: "false"'
    return ""


def is_job(pod: Document) -> bool:
    """A run with a beginning and an end: it holds a GPU, is not restarted for ever, or is made by no kind of service."""
    return (
        wants_gpu(pod)
        or text_in(pod, "spec", "restartPolicy") in ("Never", "OnFailure")
        or (controller_of(pod) not in (*_SERVICES, ""))
    )


def wants_gpu(pod: Document) -> bool:
    """By a device plugin's resource, or by a claim (dynamic resource allocation), which is most often for one, too."""
    limits = (within(one, "resources", "limits") for one in list_in(pod, "spec", "containers"))
    return any(map(_has_accelerator, limits)) or bool(list_in(pod, "spec", "resourceClaims"))


def has_gpu(node: Document) -> bool:
    """Whether a drain waits for jobs by default: on such nodes a run that is lost is dear."""
    return _has_accelerator(within(node, "status", "capacity"))


def _has_accelerator(told: object) -> bool:
    if not isinstance(told, dict):
        return False
    return any(isinstance(name, str) and name.startswith(_ACCELERATORS) and _amount(value) for name, value in told.items())


def _amount(told: object) -> bool:
    return isinstance(told, str | int) and str(told) not in ("", "0")
