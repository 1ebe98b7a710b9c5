"""What kind of thing a fact is, by the words of its name: all that the analysis knows about names.

When two facts say the same, what acts on a node is the likelier cause and where the node stands the likelier bystander. The
last word that is known decides, as in English: an agent pool is a pool, a pool's kernel is a kernel.
"""

import re
from enum import IntEnum
from typing import Final


class Kind(IntEnum):
    """The lower, the rather believed when two say the same."""

    ACTS = 0
    """Runs on the node: a unit, the kernel, a driver."""
    MADE_OF = 1
    """What the node was made of, and everything with a name that says nothing: an image, a type of instance."""
    STANDS = 2
    """Where it stands or whose it is: a zone, a pool, a label, a batch of purchase."""
    DOSE = 3
    """How long it was up. It has an analysis of its own."""
    SYMPTOM = 4
    """Measures the sickness itself, so it cannot be what caused it."""


_WORDS: Final = {
    Kind.ACTS: "unit service socket timer daemon agent process kernel sysctl driver module modules firmware microcode bios "
    "runtime containerd docker kubelet cgroup cgroups libc systemd",
    Kind.MADE_OF: "image ami os distribution instance type machine hardware model cpu cpus gpu gpus sku size memory disk",
    Kind.STANDS: "zone region site datacenter rack row cell pool nodepool agentpool nodegroup group cluster label team owner "
    "tenant batch purchase lot subnet vpc partition environment stage hostname host address serial uuid",
    Kind.DOSE: "uptime booted boot",
    Kind.SYMPTOM: "zombie zombies dying leak leaks stall stalls reset resets saturated saturation throttled throttling reclaim "
    "reclaimed restarts sick health healthy verdict badness condition conditions failure failures error errors incidents",
}
_KINDS: Final = {word: kind for kind, words in _WORDS.items() for word in words.split()}
_SPLIT: Final = re.compile(r"[^0-9A-Za-z]+|(?<=[a-z0-9])(?=[A-Z])")


def kind(name: str) -> Kind:
    for word in reversed(_SPLIT.split(name[:1000])):
        if (found := _KINDS.get(word.lower())) is not None:
            return found
    return Kind.MADE_OF
