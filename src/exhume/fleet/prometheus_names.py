"""Whose a series is: the label that names the node, or the address that was scraped, by what others say of that address."""

from collections.abc import Iterable, Mapping

from exhume.fleet.prometheus_reply import Series
from exhume.fleet.sources_names import host, matched

# Labels that name a node, the surest first; `instance` is the address that was scraped, unless somebody relabelled it.
NAMING = ("node", "kubernetes_node", "nodename", "exported_node", "hostname", "host", "instance")
BY = ", ".join(NAMING)


class Names:
    """`uname` is node_uname_info, which has an address and the node's own name; `cluster` is kube_node_info of
    kube-state-metrics, which has the name in the cluster and an address."""

    def __init__(self, uname: Iterable[Series], cluster: Iterable[Series]) -> None:
        self._by_instance: dict[str, str] = {}
        by_host: dict[str, set[str]] = {}
        self._in_cluster = {each.labels["node"] for each in cluster if each.labels.get("node")}
        for each in uname:
            instance, name = each.labels.get("instance", ""), each.labels.get("nodename", "")
            if instance and name:
                self._by_instance[instance] = name
                by_host.setdefault(host(instance), set()).add(name)
        # Several nodes behind one address (a forwarded port for each) are told apart by the port alone.
        self._shared = {address for address, names in by_host.items() if len(names) > 1}
        self._by_host = {address: next(iter(names)) for address, names in by_host.items() if len(names) == 1}
        addresses = {each.labels.get("internal_ip", ""): each.labels.get("node", "") for each in cluster}
        self._by_host |= {host(address): node for address, node in addresses.items() if address and node}
        self._resolved: dict[str, str] = {}

    def of(self, labels: Mapping[str, str]) -> str:
        """Empty where no label says."""
        for label in NAMING:
            if value := labels.get(label, ""):
                name = value if label != "instance" else self._of_instance(value)
                return self._as_cluster_has_it(name)
        return ""

    def _of_instance(self, instance: str) -> str:
        address = host(instance)
        if address in self._shared:
            return self._by_instance.get(instance, instance)
        return self._by_host.get(address, address)

    def _as_cluster_has_it(self, name: str) -> str:
        if not self._in_cluster or name in self._in_cluster:
            return name
        if name not in self._resolved:
            self._resolved[name] = matched([name], self._in_cluster).get(name, name)
        return self._resolved[name]
