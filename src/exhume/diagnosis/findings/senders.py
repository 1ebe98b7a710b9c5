"""Who sends: of a core that is busy with packets, those that come from programs of this very node, by its stack samples.

Packets across veth, bridges and loopback never leave the node: the softirq that takes all of a core's time is then the other
end of somebody's send(). Packets from outside have no sender here, and the backlog of a core (process_backlog) may hold either:
what a program of this node sends to itself, or what another core took from a driver and handed on (RPS). So nobody is named
unless the packets are seen not to come from outside.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from exhume.diagnosis.findings.held import Who, stack_of, threads_of
from exhume.diagnosis.findings.kernel_threads import is_kernel_thread
from exhume.diagnosis.findings.model import Span
from exhume.diagnosis.findings.spans import merged
from exhume.recording.recording import Ints, Recording

# net/socket.c, io_uring/net.c: a send() of whatever kind of socket, of which some have nothing to do with packets
_SEND: Final = frozenset(
    "__sys_sendto __sys_sendmsg __sys_sendmmsg ___sys_sendmsg ____sys_sendmsg sock_sendmsg __sock_sendmsg sock_write_iter "
    "io_send io_sendmsg io_send_zc".split()
)
_NO_PACKETS: Final = ("unix_", "netlink_", "vsock_", "virtio_transport_", "alg_", "skcipher_")
# net/ipv4, net/ipv6, net/packet/af_packet.c, drivers/net/tun.c: of sockets that send packets
_PROTOCOL: Final = frozenset(
    "udp_sendmsg udpv6_sendmsg tcp_sendmsg tcp_sendmsg_locked raw_sendmsg rawv6_sendmsg ping_v4_sendmsg sctp_sendmsg "
    "packet_sendmsg packet_snd tpacket_snd packet_xmit tun_get_user tun_sendmsg".split()
)
_SENDS: Final = _SEND | _PROTOCOL
# net/core/dev.c: a packet is given to whatever device
_TRANSMIT: Final = frozenset("__dev_queue_xmit dev_queue_xmit dev_hard_start_xmit __dev_direct_xmit sch_direct_xmit".split())
# to one whose other end is on this node (drivers/net: veth, loopback, tun, macvlan, ipvlan, netkit; bridges), by netif_rx
_WITHIN_NODE: Final = frozenset(
    "veth_xmit loopback_xmit macvlan_start_xmit ipvlan_start_xmit br_dev_xmit netkit_xmit netif_rx __netif_rx netif_rx_ni "
    "netif_rx_internal enqueue_to_backlog tun_get_user".split()
)
# net/core/dev.c, drivers/net/veth.c, drivers/net/tun.c: polls of what came from this node, or was handed on by another core.
# gro_cell_poll has what came out of a tunnel, from wherever. A poll of any other name is a driver's.
_POLLED: Final = frozenset("__napi_poll napi_poll net_rx_action napi_threaded_poll napi_threaded_poll_loop".split())
_LOCAL: Final = frozenset("process_backlog veth_poll tun_napi_poll".split())
_EITHER: Final = frozenset(("gro_cell_poll",))
# Fewer samples than this in a send say nothing (not many are needed: a packet of multicast is work for many, and is sent once);
# and who sends not even most of it is not the one.
_FEWEST, _MOST = 3, 0.7
# Of the polls of the cores in question, so many must be of what may have come from this node.
_MOSTLY = 0.8
# Drivers' polls, of all polls on whatever core, up to which next to nothing comes in from outside. That none was seen shows it
# only from so many polls on (with 95 % confidence: 3 / 0.05).
_FEW, _ENOUGH = 0.05, 60


class Sender(NamedTuple):
    who: Who
    share: float
    """Of all samples in a send() meanwhile, on whatever core."""


class _Stacks(NamedTuple):
    sending: Ints
    protocol: Ints
    """That are in a protocol whose sockets send packets."""
    transmitting: Ints
    within: Ints
    """That give a packet to a device whose other end is on this node."""
    local: Ints
    """That poll what may have come from this node."""
    foreign: Ints
    """That poll a driver."""


def sender(recording: Recording, spans: Iterable[Span]) -> Sender | None:
    """Who sent most while that was so, if the packets came from this node and one program sent most of them."""
    table = recording["samples"]
    if not len(table):
        return None
    spans = list(spans)
    known = recording.derived("stacks", _known)
    times, stacks, threads, cores = (table.ints(name) for name in ("time", "stack", "thread", "core"))
    meanwhile = np.zeros(len(times), dtype=bool)
    for start, end in merged(Span(-1, span.start, span.end) for span in spans).get(-1, []):
        meanwhile |= (times >= start) & (times <= end)
    local, foreign = (meanwhile & np.isin(stacks, some) for some in (known.local, known.foreign))
    of_core = {span.core for span in spans if span.core >= 0}
    there = np.isin(cores, list(of_core)) if of_core else np.ones(len(times), dtype=bool)
    backlog, polled = int((local & there).sum()), int(((local | foreign) & there).sum())
    if not backlog or backlog < _MOSTLY * polled:
        return None
    sending = meanwhile & np.isin(stacks, known.sending)
    found = _most(recording, threads[sending])
    if found is None:
        return None
    ids = [thread for thread, who in threads_of(recording).items() if who.pid == found.who.pid]
    its = stacks[sending & np.isin(threads, ids)]
    packets, transmits, within = (np.isin(its, some).any() for some in (known.protocol, known.transmitting, known.within))
    if not (packets or transmits or within):
        return None
    if any(is_kernel_thread(recording, found.who, stack_of(recording, number).names) for number in np.unique(its).tolist()):
        return None
    few = _comes_from_here(int(local.sum()), int(foreign.sum()), bool(transmits or within))
    return found if few or (within and _never_steered(recording)) else None


def _comes_from_here(local: int, foreign: int, transmits: bool) -> bool:
    """A core that is full of packets that others took in cannot be without drivers that are polled somewhere."""
    if foreign > _FEW * (local + foreign):
        return False
    return transmits or (not foreign and local >= _ENOUGH)


def _never_steered(recording: Recording) -> bool:
    """Whether no core has ever been given packets by another (RPS): a backlog then has only what was sent on this node.

    received_rps counts interrupts between cores, and a core that is never done needs none: only zero since boot tells.
    """
    counted = recording.counters("softnet_received_rps").values()
    return bool(counted) and all(int(series.values.max(initial=0)) == 0 for series in counted)


def _most(recording: Recording, threads: Ints) -> Sender | None:
    by_process: Counter[int] = Counter()
    names: dict[int, Who] = {}
    whose = threads_of(recording)
    ids, counts = np.unique(threads, return_counts=True)
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
    protocol: list[int] = []
    transmitting: list[int] = []
    within: list[int] = []
    local: list[int] = []
    foreign: list[int] = []
    table = recording["stacks"]
    for number, stack in zip(table.ints("id").tolist(), table.lists("frames"), strict=True):
        functions = [names.get(frame, "") for frame in stack]
        # What a softirq on top of a program sends on is not the program's.
        own = functions[: next((i for i, name in enumerate(functions) if name in _POLLED), len(functions))]
        sends = not _SENDS.isdisjoint(own)
        if sends and not any(name.startswith(_NO_PACKETS) for name in own):
            sending.append(number)
        for wanted, some in ((_PROTOCOL, protocol), (_TRANSMIT, transmitting), (_WITHIN_NODE, within)):
            if not wanted.isdisjoint(own):
                some.append(number)
        polled = max((i for i, name in enumerate(functions) if name in _POLLED), default=-1)
        if 0 <= polled < len(functions) - 1 and functions[polled + 1] not in _EITHER:
            (local if functions[polled + 1] in _LOCAL else foreign).append(number)
    return _Stacks(*(np.array(some, dtype=np.int64) for some in (sending, protocol, transmitting, within, local, foreign)))
