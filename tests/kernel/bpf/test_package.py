import doctest
from pathlib import Path

import exhume.kernel.bpf
from tests.kernel.bpf.needs import needs_bpf


@needs_bpf
def test_the_example_of_the_package_reads_the_name_of_this_very_thread() -> None:
    example = doctest.DocTestParser().get_doctest(exhume.kernel.bpf.__doc__ or "", {}, "example", None, None)
    assert example.examples
    outcome = doctest.DocTestRunner().run(example, clear_globs=False)
    assert outcome.failed == 0
    assert example.globs["name"] == Path("/proc/thread-self/comm").read_bytes().rstrip(b"\n")
