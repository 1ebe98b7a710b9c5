"""Who sends: of a core that is busy with packets, those that come from programs of this very node, by its stack samples.

Packets across veth, bridges and loopback never leave the node: the softirq that takes all of a core's time is then the other
end of somebody's send(). Packets from outside have no sender here.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from exhume.findings.held import Who, threads_of
from exhume.findings.model import Span
from exhume.findings.spans import merged
from exhume.recording.recording import Ints, Recording

# net/socket.c, io_uring/net.c and the protocols' own, where a compiler has inlined those
_SEND: Final = frozenset(
    "__sys_sendto __sys_sendmsg __sys_sendmmsg ___sys_sendmsg ____sys_sendmsg sock_sendmsg __sock_sendmsg sock_write_iter "
    "io_send io_sendmsg io_send_zc udp_sendmsg udpv6_sendmsg tcp_sendmsg tcp_sendmsg_locked raw_sendmsg packet_sendmsg "
    "packet_snd tun_get_user".split()
)
# net/core/dev.c, drivers/net/veth.c, kernel/bpf/cpumap.c: polls of what never came in from outside, or was handed on by
# another core. A poll of any other name is a driver's.
_POLLED: Final = frozenset("__napi_poll napi_poll net_rx_action napi_threaded_poll napi_threaded_poll_loop".split())
_WITHIN: Final = frozenset("process_backlog veth_poll xsk_poll".split())
# Fewer samples than this in a send say nothing; and who sends not even most of it is not the one.
_FEWEST, _MOST = 5, 0.7
# Of all polls that were seen meanwhile, so many must be of packets from this very node.
_LOCAL = 0.8


class Sender(NamedTuple):
    who: Who
    share: float
    """Of all samples in a send() meanwhile, on whatever core."""


class _Stacks(NamedTuple):
    sending: Ints
    local: Ints
    """That poll what came from this node."""
    foreign: Ints
    """That poll a driver."""


def sender(recording: Recording, spans: Iterable[Span]) -> Sender | None:
    """Who sent most while that was so, if the packets came from this node and one program sent most of them."""
    table = recording["samples"]
    if not len(table):
        return None
    known = recording.derived("stacks", _known)
    times, stacks, threads = table.ints("time"), table.ints("stack"), table.ints("thread")
    meanwhile = np.zeros(len(times), dtype=bool)
    for start, end in merged(Span(-1, span.start, span.end) for span in spans).get(-1, []):
        meanwhile |= (times >= start) & (times <= end)
    local, foreign = (int(np.isin(stacks[meanwhile], some).sum()) for some in (known.local, known.foreign))
    if local < _LOCAL * (local + foreign) or not local:
        return None
    by_process: Counter[int] = Counter()
    names: dict[int, Who] = {}
    whose = threads_of(recording)
    ids, counts = np.unique(threads[meanwhile & np.isin(stacks, known.sending)], return_counts=True)
    for thread, count in zip(ids.tolist(), counts.tolist(), strict=True):
        who = whose.get(thread)
        if who is not None and who.pid > 0:
            by_process[who.pid] += count
            names[who.pid] = max(names.get(who.pid, who), who)
    pid, most = max(by_process.items(), key=lambda item: (item[1], item[0]), default=(0, 0))
    whole = by_process.total()
    return Sender(names[pid], most / whole) if whole >= _FEWEST and most >= _MOST * whole else None


def _known(recording: Recording) -> _Stacks:
    frames = recording["frames"]
    rows = zip(frames.ints("id").tolist(), frames.texts("name"), frames.texts("space"), strict=True)
    names = {number: name.split(".", 1)[0] for number, name, space in rows if space == "kernel"}
    sending: list[int] = []
    local: list[int] = []
    foreign: list[int] = []
    table = recording["stacks"]
    for number, stack in zip(table.ints("id").tolist(), table.lists("frames"), strict=True):
        functions = [names.get(frame, "") for frame in stack]
        if not _SEND.isdisjoint(functions):
            sending.append(number)
        polled = max((i for i, name in enumerate(functions) if name in _POLLED), default=-1)
        if 0 <= polled < len(functions) - 1:
            (local if functions[polled + 1] in _WITHIN else foreign).append(number)
    return _Stacks(*(np.array(some, dtype=np.int64) for some in (sending, local, foreign)))
