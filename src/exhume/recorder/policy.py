"""How often a node is read and judged: every number that decides it. `[record]` of the configuration file sets them."""

from dataclasses import field
from typing import Any

from exhume.record import record


def _number(default: float, doc: str) -> Any:
    return field(default=default, metadata={"doc": doc})


@record(frozen=True, slots=True)
class Policy:
    """Of `exhume record`, `exhume record --on` and the agent alike."""

    quiet_core_ratio: float = _number(0.75, "share of idle time from which a core is quiet; while all are, batches are longer")
    awake_s: float = _number(3.0, "seconds after the last work in which a node is not called quiet")

    judge_every_s: float = _number(10.0, "seconds between two judgements of the last minute; 50 at most, as the two below")
    judge_quiet_s: float = _number(50.0, "the same while nothing was found and there is no sign of anything new")
    judge_same_s: float = _number(20.0, "the same while the findings are those of the last judgements")
    judge_same_times: int = _number(3, "equal judgements in a row after which findings are the same")
    judge_soon_s: float = _number(1.2, "the same after a stall or a message of a network driver")
    judge_share: float = _number(0.02, "share of a core that judgements after stalls may take")

    sign_idle_ratio: float = _number(0.85, "share of idle time below which a core is a sign that something happens")
    sign_pressure_ratio: float = _number(0.05, "share of time that tasks waited (PSI) which is a sign")
    sign_log_lines_per_s: float = _number(5.0, "kernel-log records a second which are a sign")
    sign_program_lines_per_s: float = _number(50.0, "records that programs wrote to /dev/kmsg a second which are a sign")
    sign_kswapd_per_s: float = _number(1000.0, "pages scanned by kswapd a second which are a sign")
    sign_major_faults_per_s: float = _number(100.0, "major page faults a second which are a sign")
    sign_squeezed_per_s: float = _number(1.0, "times a second that a network softirq used up its budget which are a sign")
    sign_pause_s: float = _number(12.0, "seconds without it after which churn of cgroups or units is a new sign")

    verdict_window_s: float = _number(70.0, "seconds before now that a verdict on an incident looks at")
    verdict_same_s: float = _number(60.0, "seconds in which the same incident gets no second verdict")
    verdict_apart_s: float = _number(3.0, "seconds between the start of two diagnoses")
    verdict_retry_s: float = _number(5.0, "seconds after which a verdict that names no cause is tried again")
    verdict_tries: int = _number(3, "tries for one incident")
    verdict_renew_s: float = _number(
        600.0, "seconds after which an incident that goes on is diagnosed anew; alerts believe a verdict for 17 minutes"
    )
    verdict_timeout_s: float = _number(60.0, "seconds that one diagnosis may take")


DEFAULT = Policy()
