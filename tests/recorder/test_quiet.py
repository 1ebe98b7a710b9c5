"""Whether all cores are quiet: only after a while without work on any of them, and not any more from the first sign of it."""

from hypothesis import given
from hypothesis import strategies as st

from exhume.host.root import Root
from exhume.recorder.cores import TICK_NS, Quiet, parse_idle
from exhume.recorder.policy import Policy

STEP = 100_000_000
AWAKE_NS = round(Policy().awake_s * 1e9)
SECOND = 1_000_000_000


def stat(*idle: int, waiting: int = 7) -> bytes:
    """As /proc/stat has it, with a line after the interrupts that looks like a core's to whoever does not look closely."""
    cores = "".join(f"cpu{core} 5 0 9 {ticks} {waiting} 0 3 0 0 0\n" for core, ticks in enumerate(idle))
    return f"cpu  1 2 3 4 5 6 7 8 9 10\n{cores}intr 12 0 4\ncpu9 1 1 1 1 1\nctxt 5\n".encode()


class Node:
    """Cores that are idle but for what they are told to do."""

    def __init__(self, cores: int = 4) -> None:
        self.quiet = Quiet()
        self.now = SECOND
        self._work_ns = [0] * cores
        self._begin = self.now

    def passes(self, ns: int = STEP, core: int = 0, busy_ns: int = 0) -> bool:
        """So much time, of which a core worked some: whether the node is quiet then."""
        self.now += ns
        self._work_ns[core] += busy_ns
        self.quiet.see(stat(*((self.now - self._begin - work) // TICK_NS for work in self._work_ns)), self.now)
        return self.quiet(self.now)

    def falls_quiet(self) -> None:
        assert any(self.passes() for _ in range(100))


def test_nothing_is_quiet_before_it_was_looked_at() -> None:
    assert not Quiet()(SECOND)


def test_a_node_without_work_is_quiet_after_a_while_and_stays_so() -> None:
    node = Node()
    quiet = [node.passes() for _ in range(60)]
    assert quiet == sorted(quiet)
    assert quiet.index(True) * STEP == AWAKE_NS


def test_one_core_that_works_for_a_part_of_a_step_is_a_sign() -> None:
    node = Node()
    node.falls_quiet()
    assert not node.passes(core=3, busy_ns=STEP * 4 // 10)


def test_what_a_node_does_all_the_time_is_none() -> None:
    node = Node()
    node.falls_quiet()
    assert all(node.passes(core=step % 4, busy_ns=STEP // 10) for step in range(50))


def test_it_is_not_quiet_for_a_while_after_the_last_sign() -> None:
    node = Node()
    node.falls_quiet()
    node.passes(busy_ns=STEP)
    quiet = [node.passes() for _ in range(60)]
    assert quiet == sorted(quiet)
    assert (quiet.index(True) + 1) * STEP == AWAKE_NS


def test_cores_that_come_and_go_are_a_sign_and_so_is_a_file_that_is_none() -> None:
    for strange in (stat(5, 5), b"", b"cpu cpu cpu\n"):
        node = Node()
        node.falls_quiet()
        node.quiet.see(strange, node.now + STEP)
        assert not node.quiet(node.now + STEP)


def test_ticks_without_work_are_idle_and_iowait_of_each_core() -> None:
    assert parse_idle(stat(40, 50)) == [47, 57]


def test_this_machine_has_cores() -> None:
    assert parse_idle(Root().read("proc/stat"))


@given(st.binary(max_size=300))
def test_any_bytes_are_no_numbers_below_zero(raw: bytes) -> None:
    assert all(idle >= 0 for idle in parse_idle(b"cpu0 1 2 3 " + raw))
