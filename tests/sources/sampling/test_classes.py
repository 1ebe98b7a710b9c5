"""What a core did, told by the names of functions on its stack."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.sources.sampling.classes import IDLE, IRQ, LEFT, SOFTIRQ, mark, of_stack, of_stacks


def of(names: str, kernel: bool = True, idle_task: bool = False, named: bool = True) -> str:
    return of_stack([mark(name) for name in names.split()], kernel, idle_task, named)


@pytest.mark.parametrize(
    ("names", "what"),
    [
        ("entry_SYSCALL_64 do_syscall_64 vfs_read", "system"),
        ("entry_SYSCALL_64 asm_sysvec_apic_timer_interrupt irq_exit handle_softirqs net_rx_action", "softirq"),
        ("kthread run_ksoftirqd __do_softirq", "softirq"),
        ("asm_common_interrupt common_interrupt handle_irq_event", "irq"),
        ("do_IRQ handle_edge_irq", "irq"),
        ("sysvec_reschedule_ipi", "irq"),
    ],
)
def test_the_innermost_of_softirq_interrupt_and_task_decides(names: str, what: str) -> None:
    assert of(names) == what


def test_the_idle_task_is_idle_unless_it_serves_an_interrupt() -> None:
    assert of("cpu_startup_entry do_idle cpuidle_enter intel_idle", idle_task=True) == "idle"
    assert of("do_idle asm_sysvec_call_function __sysvec_call_function", idle_task=True) == "irq"
    assert of("do_idle common_interrupt irq_exit_rcu __do_softirq", idle_task=True) == "softirq"


def test_number_zero_in_a_container_is_somebody_else_and_not_idle() -> None:
    assert of("entry_SYSCALL_64 do_syscall_64", idle_task=True) == "system"
    assert of("", kernel=False, idle_task=True) == "user"


def test_where_the_kernel_has_no_names_its_idle_task_is_taken_to_be_idle() -> None:
    assert of("", kernel=True, idle_task=True, named=False) == "idle"
    assert of("", kernel=True, idle_task=False, named=False) == "system"


def test_without_any_frame_of_the_kernel_it_was_user_space() -> None:
    assert of("", kernel=False) == "user"
    assert of("", kernel=False, named=False) == "user"


def test_what_a_task_does_on_its_way_out_of_an_interrupt_is_its_own() -> None:
    names = ["asm_sysvec_reschedule_ipi", "irqentry_exit_to_user_mode", "get_signal", "do_exit", "exit_mmap"]
    assert of_stack([mark(name) for name in names], True, False, True) == "system"
    within = ["asm_sysvec_reschedule_ipi", "irqentry_exit", "preempt_schedule_irq", "sysvec_apic_timer_interrupt"]
    assert of_stack([mark(name) for name in within], True, False, True) == "irq"
    assert mark("irqentry_exit.isra.0") == mark("irqentry_exit")


MARKS = st.lists(st.sampled_from([0, 0, IDLE, SOFTIRQ, IRQ, LEFT]), max_size=6)


@given(st.lists(st.tuples(MARKS, st.booleans(), st.booleans()), max_size=6), st.booleans())
def test_many_stacks_are_classed_as_one_is(stacks: list[tuple[list[int], bool, bool]], named: bool) -> None:
    marks = np.array([each for found, _, _ in stacks for each in found], dtype=np.int64)
    lengths = np.array([len(found) for found, _, _ in stacks], dtype=np.int64)
    kernel = np.array([each for _, each, _ in stacks], dtype=bool)
    idle_task = np.array([each for _, _, each in stacks], dtype=bool)
    expected = [of_stack([each for each in found if each], inside, idle, named) for found, inside, idle in stacks]
    assert of_stacks(marks, lengths, kernel, idle_task, named) == expected
