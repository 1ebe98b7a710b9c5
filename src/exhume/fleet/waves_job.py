"""A node fixed by a Job of the cluster: what it asks for. Pure.

The Job is made with the operator's own credentials and holds none itself. It runs once, on one node, for a bounded time, as
root with the node's root directory mounted: what stops units and lets cgroups go needs nothing less.
"""

import hashlib
import re
from dataclasses import dataclass

from exhume.cluster.document import Document, checked_name
from exhume.cluster.rights import Right
from exhume.errors import UsageError
from exhume.text import printable

HOST = "/host"
KEEP_S = 3600
"""A Job that ended is there for so long, if nobody deletes it."""
MEMORY_MIB = 768  # what the agent has, which does the same work: deploy/helm/exhume/values.yaml
_GRACE_S = 60
# distribution/reference: what an image's name may be made of. No space, no control, no option.
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,1023}")

# Of nodes, which are in no namespace; and in the namespace of the Jobs.
NODE_RIGHTS = (Right("get", "nodes", "it cannot be seen whether a node is there and ready"),)
JOB_RIGHTS = (
    Right("create", "jobs", "nothing can be run on a node", "batch"),
    Right("get", "jobs", "it cannot be seen how a Job ends", "batch"),
    Right("delete", "jobs", "a Job that must not run any more cannot be taken back", "batch"),
    Right("list", "pods", "it cannot be seen how a Job ended, and why it does not begin"),
    Right("get", "pods/log", "what a Job printed, the proof in it, cannot be read"),
)


@dataclass(frozen=True, slots=True)
class Asked:
    image: str
    target: str
    namespace: str = "default"
    timeout_s: float = 1800.0
    verify_for: str = "10m"
    irreversible: bool = False
    """Let zombies go without asking."""
    pull_secret: str = ""

    def __post_init__(self) -> None:
        if not _IMAGE.fullmatch(self.image):
            raise UsageError(f"{printable(self.image, 120) or 'nothing'} is not the name of an image")
        checked_name(self.namespace, "namespace")
        if self.pull_secret:
            checked_name(self.pull_secret, "secret")

    @property
    def command(self) -> tuple[str, ...]:
        sure = ("--yes", "--yes-irreversible") if self.irreversible else ("--yes",)
        proof = ("--verify", "--verify-for", self.verify_for)
        return ("exhume", "fix", "--host", HOST, "--apply", *sure, *proof, "--", self.target)

    @property
    def described(self) -> str:
        """What is run for each node, for the journal and for people: another one is another roll-out."""
        return f"a Job of {self.image} in the namespace {self.namespace}: {' '.join(self.command)}"


def name(asked: Asked, node: str) -> str:
    """The same for the same work on the same node: whoever comes back after a crash finds what he began, and never two."""
    told = "\0".join((node, asked.image, asked.namespace, *asked.command))
    return f"exhume-fix-{hashlib.sha256(told.encode('utf-8', 'backslashreplace')).hexdigest()[:16]}"


def manifest(asked: Asked, node: str) -> Document:
    """Pinned by nodeName: the scheduler would keep it away from a node that is cordoned, which the sick ones often are."""
    checked_name(node)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name(asked, node), "namespace": asked.namespace, **_marks(asked, node)},
        "spec": {
            "backoffLimit": 0,
            "completions": 1,
            "parallelism": 1,
            "activeDeadlineSeconds": round(asked.timeout_s),
            "ttlSecondsAfterFinished": KEEP_S,
            "template": {"metadata": _marks(asked, node), "spec": _pod(asked, node)},
        },
    }


def _marks(asked: Asked, node: str) -> Document:
    return {
        "labels": {"app.kubernetes.io/name": "exhume", "app.kubernetes.io/component": "fix"},
        "annotations": {"exhume/node": node, "exhume/target": printable(asked.target, 200)},
    }


def _pod(asked: Asked, node: str) -> Document:
    return {
        "nodeName": node,
        "tolerations": [{"operator": "Exists"}],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": _GRACE_S,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # A node that starves may take minutes to give a pod a network of its own; nothing listens.
        "hostNetwork": True,
        "dnsPolicy": "Default",
        "hostPID": True,
        **({"imagePullSecrets": [{"name": asked.pull_secret}]} if asked.pull_secret else {}),
        "containers": [
            {
                "name": "fix",
                "image": asked.image,
                "imagePullPolicy": "IfNotPresent",
                "command": list(asked.command),
                "terminationMessagePolicy": "FallbackToLogsOnError",
                # A limit of CPU throttles, and a throttled watch misses stalls: there is none.
                "resources": {
                    "requests": {"cpu": "20m", "memory": "128Mi"},
                    "limits": {"memory": f"{MEMORY_MIB}Mi", "ephemeral-storage": "256Mi"},
                },
                "securityContext": {
                    "privileged": True,
                    "runAsUser": 0,
                    "runAsGroup": 0,
                    "readOnlyRootFilesystem": True,
                },
                "volumeMounts": [
                    # What is mounted below, cgroups and /run among it, comes along, and what is mounted later.
                    {"name": "host", "mountPath": HOST, "mountPropagation": "HostToContainer"},
                    {"name": "tmp", "mountPath": "/tmp"},
                ],
            }
        ],
        "volumes": [
            {"name": "host", "hostPath": {"path": "/", "type": "Directory"}},
            {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
        ],
    }
