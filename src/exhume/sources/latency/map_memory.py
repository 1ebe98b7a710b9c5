"""How many bytes of kernel memory a BPF map takes, counted from above: what is promised to those who leave the probes on."""

_PAGE = 4096
_ELEMENT = 48  # struct htab_elem in kernel/bpf/hashtab.c: links, LRU node and hash
_BUCKET = 16  # struct bucket: the list's head and a lock
_MAP = 1024  # struct bpf_map and what is around it


def array(value_bytes: int, entries: int) -> int:
    return _pages(_MAP + _aligned(value_bytes) * entries)


def per_cpu_array(value_bytes: int, entries: int, cpus: int) -> int:
    return _pages(_MAP + 8 * entries) + _aligned(value_bytes) * entries * cpus


def table(key_bytes: int, value_bytes: int, entries: int, cpus: int) -> int:
    """A hash, all of whose entries are set aside at the beginning, one more for each CPU (prealloc_init)."""
    element = _ELEMENT + _aligned(key_bytes) + _aligned(value_bytes)
    buckets = 1 << (entries - 1).bit_length()
    # Counters in front of the buckets, so that a program does not change the bucket it is in already (map_locked).
    return _pages(_MAP + 64 * cpus) + _pages(buckets * _BUCKET) + _pages((entries + cpus) * element)


def _aligned(size: int) -> int:
    return -size // 8 * -8


def _pages(size: int) -> int:
    return -size // _PAGE * -_PAGE
