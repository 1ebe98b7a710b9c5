"""Batches of rows as a recorder hands them over, for tests of what the agent makes of them."""

from collections.abc import Iterable

from exhume.host.root import Root
from exhume.recording.recording import Node, Recording
from exhume.sources.kernel_log import KernelLog
from tests.trees import Tree

SECOND = 1_000_000_000
NODE = Node("node-7", "boot", "6.1.0", "v1", 2)


def batch(at_s: float, node: Node = NODE) -> Recording:
    """An empty one: only the cores and the clock were read."""
    rows, at = Recording(node), round(at_s * SECOND)
    for moment in (at, at + SECOND):
        rows["cpu"].add(moment, 0, *range(10))
    rows["anchors"].add(at, at, at, at, 0)
    return rows


def memcg(rows: Recording, at_s: float, live: int, dying: int, method: str = "proc-cgroups") -> None:
    rows["memcg"].add(round(at_s * SECOND), "/", live, dying, live + dying, method, "node", 1)


def walked(rows: Recording, at_s: float, groups: Iterable[tuple[str, str, int]]) -> None:
    """Path, unit and zombies of each group."""
    for path, unit, zombies in groups:
        rows["memcg_walk"].add(
            round(at_s * SECOND), path, path, "/", zombies, 0, 0, 0, 0, 0, unit, "", "", "", 90, "path", "bpf-walk",
            0, 0, 0, "", "",
        )  # fmt: skip


def waited(rows: Recording, what: str, device: str, histogram: list[int], sum_ns: int, stage: str = "wait") -> None:
    time = int(rows["anchors"].ints("time")[0])
    rows["latency"].add(time, what, stage, 0, device, 1, "", sum(histogram), sum_ns, 0, tuple(histogram), 0, 0, "", 1000)


def logged(tree: Tree, rows: Recording, lines: Iterable[tuple[float, str]]) -> None:
    """Lines of the kernel, by seconds since boot, read by our own reader from a log that holds them."""
    records = "".join(f"4,{i},{round(at * 1e6)},-;{line}\n" for i, (at, line) in enumerate(lines))
    tree.write("dev/kmsg", records)
    KernelLog(Root(str(tree.path))).read(rows, int(rows["anchors"].ints("time")[0]))
