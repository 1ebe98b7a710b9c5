"""Values that each CPU has of its own in a BPF map: which CPU a value is of, and taking them out."""

import numpy as np
import numpy.typing as npt

from exhume.errors import Unreadable
from exhume.host.cpu_list import cpu_list
from exhume.host.root import Root
from exhume.kernel.bpf import PerCpuArray
from exhume.kernel.bpf.maps import POSSIBLE_CPUS


def possible_cpus() -> tuple[int, ...]:
    """The numbers of the CPUs in the order of their values; mostly, but not always, without holes."""
    cpus = cpu_list(Root().read(POSSIBLE_CPUS))
    if not cpus:
        raise Unreadable(f"{POSSIBLE_CPUS} does not say which CPUs there can be")
    return cpus


def emptied(array: PerCpuArray, index: int, record: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """The values of all CPUs at an index, which are zero from now on."""
    values = array.lookup(index)
    assert values is not None, "an array has all its entries"
    raw = b"".join(values)
    if raw.count(0) != len(raw):
        array.update(index, (bytes(record.itemsize),) * len(values))
    return np.frombuffer(raw, record)
