"""Who sends the packets that a core is busy with: named only where they are seen to come from this node."""

import random

import pytest

from exhume.diagnosis.findings.model import Span
from exhume.diagnosis.findings.senders import sender
from exhume.recording.recording import Recording, labels
from tests.diagnosis.findings import made
from tests.diagnosis.findings.made import SECOND

POLL = ("__napi_poll", "net_rx_action", "handle_softirqs", "run_ksoftirqd", "smpboot_thread_fn", "kthread", "ret_from_fork")
BACKLOG = ("nf_conntrack_in", "ip_rcv", "__netif_receive_skb", "process_backlog", *POLL)
DRIVER = ("mlx5e_poll_rx_cq", "mlx5e_napi_poll", *POLL)
UDP = ("ip_make_skb", "udp_sendmsg", "__sys_sendto", "do_syscall_64")
OUT = ("mlx5e_xmit", "dev_hard_start_xmit", "__dev_queue_xmit", "ip_output", "tcp_sendmsg", "do_syscall_64")
VETH = ("veth_xmit", "dev_hard_start_xmit", "__dev_queue_xmit", "ip_output", "udp_sendmsg", "do_syscall_64")
UNIX = ("unix_stream_sendmsg", "sock_sendmsg", "__sys_sendto", "do_syscall_64")
WEB = "/system.slice/web.service"
SPANS = (Span(7, 0, 10 * SECOND),)


def busy(
    sends: tuple[str, ...], driver: float = 0.0, share: float = 0.1, comm: str = "web", cgroup: str = WEB, hz: int = 99
) -> Recording:
    """Core 7 works on its backlog for ten seconds; a driver is polled on core 3 for a share of it, and somebody sends."""
    recording = made.recording(cpus=16)
    made.sample(recording, 0.0, 10.0, 7, "ksoftirqd/7", 77, BACKLOG, "softirq", hz=hz)
    made.sample(recording, 0.0, 10.0 * driver, 3, "ksoftirqd/3", 33, DRIVER, "softirq", hz=hz)
    made.sample(recording, 0.0, 10.0 * share, 9, comm, 6001, sends, cgroup=cgroup, hz=hz)
    return recording


def named(recording: Recording) -> str:
    found = sender(recording, SPANS)
    return found.who.comm if found is not None else ""


def test_packets_that_another_core_took_from_a_driver_have_no_sender_here() -> None:
    """process_backlog is also what RPS hands on."""
    assert named(busy(UDP, driver=0.2)) == ""
    assert named(busy(OUT, driver=0.2)) == ""
    assert named(busy(VETH, driver=0.2)) == ""


def test_where_no_driver_is_polled_the_packets_come_from_who_sends() -> None:
    found = sender(busy(UDP), SPANS)
    assert found is not None
    assert (found.who.comm, found.who.cgroup, found.share) == ("web", WEB, 1.0)


def test_too_few_polls_do_not_show_that_no_driver_is_polled() -> None:
    assert named(busy(UDP, hz=5, share=1.0)) == ""
    assert named(busy(VETH, hz=5, share=1.0)) == "web"


def test_a_driver_that_is_polled_now_and_then_leaves_who_transmits() -> None:
    assert named(busy(UDP, driver=0.03)) == ""
    assert named(busy(VETH, driver=0.03)) == "web"


@pytest.mark.parametrize(("before", "sends", "name"), [(0, VETH, "web"), (0, OUT, ""), (1, VETH, "")])
def test_where_no_core_was_ever_given_packets_by_another_a_backlog_is_local(
    before: int, sends: tuple[str, ...], name: str
) -> None:
    recording = busy(sends, driver=0.5)
    for second in (0, 10):
        recording.count(second * SECOND, "softnet_received_rps", before, labels(cpu=7))
        recording.count(second * SECOND, "softnet_received_rps", 0, labels(cpu=3))
    assert named(recording) == name


def test_a_core_that_polls_a_driver_itself_has_its_packets_from_there() -> None:
    recording = busy(VETH)
    assert sender(recording, (Span(3, 0, 10 * SECOND),)) is None
    made.sample(recording, 0.0, 4.0, 7, "ksoftirqd/7", 77, DRIVER, "softirq")
    recording.count(0, "softnet_received_rps", 0, labels(cpu=7))
    assert named(recording) == ""


def test_sockets_that_send_no_packets_do_not_count() -> None:
    assert named(busy(UNIX)) == ""
    assert named(busy(("security_socket_sendmsg", "__sys_sendto", "do_syscall_64"))) == "", "not known what it sends"
    recording = busy(UDP, share=0.05)
    made.sample(recording, 0.0, 5.0, 10, "logger", 6002, UNIX)
    assert named(recording) == "web"


def test_the_poll_of_an_xdp_socket_is_no_poll_of_packets_from_this_node() -> None:
    """xsk_poll is the poll(2) of AF_XDP (net/xdp/xsk.c), and never called by net_rx_action."""
    recording = made.recording(cpus=16)
    made.sample(recording, 0.0, 10.0, 7, "ksoftirqd/7", 77, ("xsk_poll", *POLL), "softirq")
    made.sample(recording, 0.0, 1.0, 9, "web", 6001, VETH, cgroup=WEB)
    assert named(recording) == ""


def test_what_a_softirq_on_top_of_a_program_sends_on_is_not_the_programs() -> None:
    forwards = ("veth_xmit", "__dev_queue_xmit", "ip_forward", "process_backlog", *POLL[:3])
    recording = busy((*forwards, "asm_common_interrupt", *UDP), driver=0.03)
    assert named(recording) == ""


def test_a_thread_of_the_kernel_sends_for_others() -> None:
    kernel = ("udp_sendmsg", "xs_udp_send_request", "rpc_async_schedule", "worker_thread", "kthread", "ret_from_fork")
    assert named(busy(kernel, comm="kworker/u32:1", cgroup="/")) == ""


def test_one_of_several_that_send_is_not_named() -> None:
    recording = busy(VETH)
    made.sample(recording, 0.0, 0.6, 10, "other", 6002, VETH)
    assert named(recording) == ""


def test_the_order_of_rows_does_not_matter() -> None:
    recording = busy(VETH, driver=0.03)
    other = Recording(recording.node)
    for name in ("samples", "stacks", "frames", "threads"):
        rows = [tuple(row.values()) for row in recording[name].rows()]
        random.Random(name).shuffle(rows)
        other[name].add_rows(rows)
    assert sender(other, SPANS) == sender(recording, SPANS) is not None
