"""What the tests on the real kernel have in common."""

import pytest

from exhume.kernel.bpf import Features, unavailable

_WHY_NOT = unavailable()
needs_bpf = pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT or "BPF is there")
needs_test_run = pytest.mark.skipif(
    bool(_WHY_NOT) or not Features().test_run, reason="this kernel cannot run a raw tracepoint's program on demand"
)

OLD_KERNEL = Features(probe_read_kernel=False, bounded_loops=False, mmapable_arrays=False, test_run=False, batch_lookup=False)
"""A kernel such as 5.2, as far as this layer is concerned."""

EACH_FALLBACK = {
    "as found": Features(),
    "no probe_read_kernel": Features(probe_read_kernel=False),
    "no bounded loops": Features(bounded_loops=False),
    "no mmap-able arrays": Features(mmapable_arrays=False),
    "no test-run": Features(test_run=False),
    "no batch look-ups": Features(batch_lookup=False),
    "none of them": OLD_KERNEL,
}
each_fallback = pytest.mark.parametrize("features", EACH_FALLBACK.values(), ids=EACH_FALLBACK.keys())
