"""Lists of CPUs as the kernel writes them."""

_MOST_CPUS = 65_536  # well above CONFIG_NR_CPUS of any kernel (8192)


def cpu_list(raw: bytes) -> tuple[int, ...]:
    """`0-2,8` as (0, 1, 2, 8), the format of bitmap_print_to_pagebuf(); nothing when it is anything else."""
    cpus: list[int] = []
    for part in raw.strip().split(b","):
        low, dash, high = part.partition(b"-")
        if not (low.isdigit() and len(low) < 6 and (not dash or (high.isdigit() and len(high) < 6))):
            return ()
        last = int(high) if dash else int(low)
        if last >= _MOST_CPUS or (cpus and int(low) <= cpus[-1]):
            return ()
        cpus.extend(range(int(low), last + 1))
    return tuple(cpus)
