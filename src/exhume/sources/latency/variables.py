"""Where a core keeps its own variables, told from one of them to another: by BTF, or else by the kernel's symbols.

BTF has them where it was made by pahole 1.22 or newer: builds with an older one leave them out (--skip_encoding_btf_vars in
scripts/link-vmlinux.sh), as Debian's 5.10 does. /proc/kallsyms has them with CONFIG_KALLSYMS_ALL, which distributions have,
and shows their places to root.
"""

import os
import re
from typing import Final

from exhume.kernel.bpf import Btf

KALLSYMS: Final = "/proc/kallsyms"
RUN_QUEUE: Final = "runqueues"
_NAMES: Final = (RUN_QUEUE, "ksoftirqd", "kstat", "softnet_data", "__softirq_pending", "pcpu_hot", "irq_stat")
# A module's symbol has the module's name behind it.
_LINE: Final = re.compile(rb"^([0-9a-f]{1,16}) [A-Za-z] (" + "|".join(_NAMES).encode() + rb")$", re.MULTILINE)


class Variables:
    """Answers with None what neither knows, and everything where they do not know the run queue itself."""

    def __init__(self, btf: Btf, kallsyms: str | os.PathLike[str] = KALLSYMS) -> None:
        places = {name: btf.per_cpu(name) for name in _NAMES}
        if places[RUN_QUEUE] is None:
            places = dict(_symbols(kallsyms))
        self._places = {name: place for name, place in places.items() if place is not None}

    def distance(self, name: str) -> int | None:
        """Bytes from a core's run queue to another variable of that core."""
        here, there = self._places.get(RUN_QUEUE), self._places.get(name)
        return None if here is None or there is None else there - here


def _symbols(kallsyms: str | os.PathLike[str]) -> dict[str, int]:
    try:
        with open(kallsyms, "rb") as file:
            return parse(file.read())
    except OSError:
        return {}


def parse(raw: bytes) -> dict[str, int]:
    """The places of those that are there once. To those who may not know them, all are shown as 0."""
    found = [(match[2].decode(), int(match[1], 16)) for match in _LINE.finditer(raw)]
    names = [name for name, _ in found]
    return {name: place for name, place in found if names.count(name) == 1 and dict(found).get(RUN_QUEUE)}
