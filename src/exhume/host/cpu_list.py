"""Lists of CPUs as the kernel writes them."""

_MOST_CPUS = 65_536  # well above CONFIG_NR_CPUS of any kernel (8192)
_HEX = frozenset(b"0123456789abcdef")


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


def cpu_mask(raw: bytes) -> tuple[int, ...]:
    """`00000001,00000003` as (0, 1, 32), the format of %*pb: words of 32 bits, the highest first; nothing when it is not."""
    words = raw.strip().split(b",")
    if len(words) > _MOST_CPUS // 32 or not all(0 < len(word) <= 8 and _HEX.issuperset(word) for word in words):
        return ()
    bits = 0
    for word in words:
        bits = bits << 32 | int(word, 16)
    return tuple(cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1)


def cpu_text(cpus: tuple[int, ...]) -> str:
    """(0, 1, 2, 8) as `0-2,8`."""
    runs: list[list[int]] = []
    for cpu in cpus:
        if runs and runs[-1][1] == cpu - 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
