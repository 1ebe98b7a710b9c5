"""A fleet as Prometheus knows it: the agent's metrics where it runs, node_exporter's and the kubelet's where it does not.

Only what is summed up by node is asked for, a value every step, so that a fleet of thousands is a few megabytes, and nodes that
have vanished are seen as well.
"""

from collections.abc import Callable

from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.errors import ExhumeError
from exhume.fleet.model import Fleet
from exhume.fleet.prometheus_names import BY, Names
from exhume.fleet.prometheus_nodes import Window, add_facts, gather, nodes, say
from exhume.fleet.prometheus_query import Client
from exhume.fleet.prometheus_reply import Series
from exhume.fleet.prometheus_told import renamed, told
from exhume.host.quantities import SECOND, compact, duration

WINDOW_S = 7 * 86_400.0
_STEPS = 336
_SHORTEST_STEP_S = 60.0

# Asked for as they are. Names of the agent are those of exhume.agent.metrics (a test holds that); the others were looked up on
# node_exporter 1.5 and the kubelet.
GAUGES = {
    "dying": f'sum by ({BY}) (exhume_memory_cgroups{{state="dying"}})',
    "live": f'sum by ({BY}) (exhume_memory_cgroups{{state="live"}})',
    "total": f'max by ({BY}) (node_cgroups_cgroups{{subsys_name="memory"}})',
    "watched": f'count by ({BY}) (container_memory_usage_bytes{{id!=""}})',
    "booted": f"max by ({BY}) (node_boot_time_seconds)",
    "skew": f"max by ({BY}) (node_time_seconds - timestamp(node_time_seconds))",
}
# Their growth counts.
COUNTERS = {
    "resets": "exhume_nic_resets_total",
    "stall_s": 'exhume_stall_seconds_total{what="napi"}',
    "saturated_s": "exhume_core_saturated_seconds_total",
}
HEALTH = f"max by ({BY}, health) (exhume_node_health == 1)"
VERDICT = f"max by ({BY}, cause, subject) (exhume_verdict_confidence)"
# Whose labels are facts, and what they are called then (Kubernetes' names); empty is left out.
FACTS = {
    "node_uname_info": {"release": "kernel", "machine": "arch", "version": ""},
    "node_os_info": {"pretty_name": "os", "name": "", "version": "", "id_like": "", "version_codename": ""},
    "node_dmi_info": {"product_name": "instance-type", "bios_version": "bios"},
    "exhume_build_info": {"version": "exhume"},
    "kube_node_info": {
        "kernel_version": "kernel",
        "os_image": "os",
        "container_runtime_version": "container-runtime",
        "kubelet_version": "kubelet",
        "internal_ip": "internal-ip",
        "provider_id": "provider-id",
        "system_uuid": "system-uuid",
    },
    "kube_node_labels": {
        "label_topology_kubernetes_io_zone": "zone",
        "label_topology_kubernetes_io_region": "region",
        "label_node_kubernetes_io_instance_type": "instance-type",
    },
}


def load(
    url: str,
    window_s: float = WINDOW_S,
    end_s: float | None = None,
    progress: Callable[[float], None] | None = None,
    client: Client | None = None,
    thresholds: Thresholds | None = None,
) -> Fleet:
    client = client or Client(url)
    now_s = client.now_s()
    end_s = now_s if end_s is None else min(end_s, now_s)
    step_s = max(_SHORTEST_STEP_S, round(window_s / _STEPS / 60) * 60.0)
    window = Window(end_s - window_s, end_s, step_s)
    asking = _Asking(client, window, progress, len(GAUGES) + len(COUNTERS) + len(FACTS) + 2)
    labels = {metric: asking.facts(metric) for metric in FACTS}
    names = Names(labels["node_uname_info"], labels["kube_node_info"])
    gauges = {what: asking.over(expression) for what, expression in GAUGES.items()}
    counters = {what: asking.over(f"sum by ({BY}) ({metric})") for what, metric in COUNTERS.items()}
    found = gather(names, gauges, counters)
    say(found, names, "health", asking.over(HEALTH), ("health", "health"))
    say(found, names, "verdict", asking.over(VERDICT), ("cause", "subject"))
    for metric, called in FACTS.items():
        add_facts(found, names, labels[metric], called)
    if not found:
        why = f" ({asking.lost[0]})" if asking.lost else ""
        raise ExhumeError(
            f"{client.described} has neither the agent's metrics nor node_exporter's within "
            f"{duration(window_s * SECOND)}{why}: exhume agent exports them, node_exporter needs --collector.cgroups"
        )
    found, same = renamed(found, window)
    made, boots = nodes(found, window, thresholds)
    troubles = (*client.troubles, *asking.lost, *same, *told(found, window))
    return Fleet(client.described, made, troubles, boots=boots)


def last_known(client: Client, metric: str, start_s: float, end_s: float) -> tuple[Series, ...]:
    """Labels that are facts: of nodes that have gone, too, if that is not too much."""
    try:
        return client.instant(f"last_over_time({metric}[{compact(round(end_s - start_s) * SECOND)}])", end_s)
    except ExhumeError:
        return client.instant(metric, end_s)


class _Asking:
    """One question after the other: what cannot be had is told, and the rest is asked for all the same."""

    def __init__(self, client: Client, window: Window, progress: Callable[[float], None] | None, questions: int) -> None:
        self._client, self._window, self._progress, self._questions = client, window, progress, questions
        self._asked = 0
        self.lost: list[str] = []

    def over(self, expression: str) -> tuple[Series, ...]:
        window = self._window
        return self._try(lambda: self._client.over(expression, window.start_s, window.end_s, window.step_s))

    def facts(self, metric: str) -> tuple[Series, ...]:
        return self._try(lambda: last_known(self._client, metric, self._window.start_s, self._window.end_s))

    def _try(self, ask: Callable[[], tuple[Series, ...]]) -> tuple[Series, ...]:
        try:
            return ask()
        except ExhumeError as error:
            if str(error) not in self.lost:
                self.lost.append(str(error))
            return ()
        finally:
            self._step()

    def _step(self) -> None:
        self._asked += 1
        if self._progress is not None:
            self._progress(min(1.0, self._asked / self._questions))
