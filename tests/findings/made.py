"""Recordings made of numbers, for detectors: what a node would have shown."""

from exhume.recording.recording import Node, Recording

SECOND = 1_000_000_000
HZ = 100


def recording(cpus: int = 4, on: tuple[str, ...] = ("cpu", "memcg", "kernel-log", "units", "throttling", "nic")) -> Recording:
    """Empty, with those sources on and an anchor."""
    made = Recording(Node("node-7", "boot", "5.4.0", "v1", cpus))
    made["anchors"].add(0, 0, 0, 1_700_000_000 * SECOND, 1)
    for name in on:
        made["sources"].add(0, name, "on", "", 0)
    return made


def cores(
    made: Recording, seconds: float, shares: dict[int, list[tuple[float, float, str]]], step: float = 0.05, at: int = 0
) -> None:
    """CPU rows at a rhythm: per core a list of (from, to, state) in seconds, idle otherwise, in whole ticks."""
    states = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")
    for i in range(round(seconds / step) + 1):
        now = i * step
        for core in range(made.node.cpus):
            spent = dict.fromkeys(states, 0.0)
            for start, end, state in shares.get(core, []):
                spent[state] += max(0.0, min(now, end) - start)
            spent["idle"] += now - sum(spent.values())
            made["cpu"].add(at + round(now * SECOND), core, *(1000 + int(spent[state] * HZ) for state in states))
