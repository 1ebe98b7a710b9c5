"""What a core did when a sample was taken, by the functions of the kernel on its stack: idle, user, system, softirq or irq."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

IDLE, SOFTIRQ, IRQ, LEFT = 1, 2, 4, 8

# The idle loop: kernel/sched/idle.c, arch/*/kernel/process.c. Only the idle task of a core runs it.
_IDLE = frozenset(
    "do_idle cpu_idle_loop cpu_startup_entry cpuidle_idle_call cpuidle_enter cpuidle_enter_state default_idle_call "
    "default_idle arch_cpu_idle cpu_idle_poll intel_idle acpi_idle_enter acpi_idle_do_entry mwait_idle poll_idle "
    "pv_native_safe_halt native_safe_halt cpu_do_idle haltpoll_enter_idle intel_idle_irq intel_idle_ibrs "
    "intel_idle_hlt intel_idle_hlt_irq_on intel_idle_xstate intel_idle_s2idle mwait_idle_with_hints acpi_safe_halt "
    "acpi_idle_enter_bm acpi_idle_lpi_enter default_enter_idle call_cpuidle native_halt xen_safe_halt amd_e400_idle "
    "psci_enter_idle_state psci_cpu_suspend_enter cpu_idle".split()
)
# kernel/softirq.c: __do_softirq was renamed to handle_softirqs in 6.10 (e68ac2b48849).
_SOFTIRQ = frozenset(
    "__do_softirq handle_softirqs do_softirq do_softirq_own_stack run_ksoftirqd __softirqentry_text_start".split()
)
# Where interrupts come in: arch/x86/include/asm/idtentry.h, arch/x86/entry/entry_64.S before 5.8, arch/arm64/kernel/entry*.
_IRQ = frozenset(
    "common_interrupt do_IRQ ret_from_intr handle_irq_event generic_handle_irq handle_domain_irq __handle_domain_irq "
    "generic_handle_domain_irq smp_apic_timer_interrupt apic_timer_interrupt hrtimer_interrupt reschedule_interrupt "
    "call_function_interrupt call_function_single_interrupt smp_call_function_single_interrupt smp_call_function_interrupt "
    "gic_handle_irq el1_irq el0_irq el1_interrupt el0_interrupt el1h_64_irq el0t_64_irq irq_work_interrupt "
    "xen_hvm_callback_vector hyperv_callback_vector asm_common_interrupt exc_nmi asm_exc_nmi nmi default_do_nmi".split()
)
# On the way out of an interrupt the task goes on: signals, preemption, exit (kernel/entry/common.c, arch/*/kernel/signal.c).
_LEFT = frozenset(
    "irqentry_exit irqentry_exit_to_user_mode exit_to_user_mode_loop exit_to_user_mode_prepare prepare_exit_to_usermode "
    "do_notify_resume preempt_schedule_irq arm64_preempt_schedule_irq raw_irqentry_exit_cond_resched "
    "irqentry_exit_cond_resched exit_to_user_mode retint_user".split()
)
_IRQ_BEGINNINGS = ("sysvec_", "asm_sysvec_", "__sysvec_")
MARKED = (*_IDLE, *_SOFTIRQ, *_IRQ, *_LEFT, *_IRQ_BEGINNINGS)
"""The names that say something, and those that others begin with."""
_KINDS = ("softirq", "irq", "idle", "system", "user")


def mark(name: str) -> int:
    """What a function of the kernel says about the stacks it is on."""
    name = name.split(".", 1)[0]  # .isra.0, .constprop.0, .llvm.123
    if name in _LEFT:
        return LEFT
    if name in _IDLE:
        return IDLE
    if name in _SOFTIRQ:
        return SOFTIRQ
    if name in _IRQ or name.startswith(_IRQ_BEGINNINGS):
        return IRQ
    return 0


def of_stack(marks: Iterable[int], kernel: bool, idle_task: bool, named: bool) -> str:
    """The class of a stack: the marks of its functions, the outermost first, whether it has any of the kernel, whether it is
    of pid 0 (which in a container is every process of others, too), and whether the kernel's functions have names at all."""
    found = 0
    for each in marks:
        found = found & ~IRQ if each == LEFT else found | each
    if found & SOFTIRQ:
        return "softirq"
    if found & IRQ:
        return "irq"
    if idle_task and (found & IDLE or not named):
        return "idle"
    return "system" if kernel else "user"


def of_stacks(
    marks: NDArray[np.int64],
    lengths: NDArray[np.int64],
    kernel: NDArray[np.bool_],
    idle_task: NDArray[np.bool_],
    named: bool,
) -> list[str]:
    """The same of many stacks, one after the other: the marks of all their functions, 0 for those that have none."""
    places = np.flatnonzero(marks)
    marks = marks[places]
    owner = np.searchsorted(np.cumsum(lengths), places, side="right")
    last = {mark: np.full(len(lengths), -1, dtype=np.int64) for mark in (IDLE, SOFTIRQ, IRQ, LEFT)}
    for mark, found in last.items():
        mine = marks == mark
        found[owner[mine]] = places[mine]
    resting = idle_task & (last[IDLE] >= 0) if named else idle_task
    in_irq = last[IRQ] > last[LEFT]
    kinds = np.where(last[SOFTIRQ] >= 0, 0, np.where(in_irq, 1, np.where(resting, 2, np.where(kernel, 3, 4))))
    return [_KINDS[kind] for kind in kinds.tolist()]
