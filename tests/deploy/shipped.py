"""What the chart gives the agent by default: rendered by Helm where it is built, else by its values and privileges.py.

That both are the same is held by test_chart.py.
"""

import os
from dataclasses import dataclass
from typing import Any

import yaml

from exhume.agent import privileges
from exhume.agent.privileges import Mount
from tests.cluster import servers
from tests.deploy import helm

SWITCHES = {"journal": "journal", "dbus": "dbus", "ethtool": "ethtool", "userStacks": "user-stacks", "audit": "audit"}
"""Values below `sources`, and the groups of privileges.py that they switch on."""


@dataclass(frozen=True, slots=True)
class Shipped:
    capabilities: tuple[str, ...]
    mounts: tuple[Mount, ...]
    writable: tuple[str, ...]


def values() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((helm.CHART / "values.yaml").read_text())
    return found


def groups(sources: dict[str, Any]) -> tuple[str, ...]:
    on = [group for switch, group in SWITCHES.items() if sources[switch] not in (False, "none")]
    return (*on, f"runtime={sources['runtime']}")


def chart() -> Shipped:
    if os.access(servers.program("helm"), os.X_OK):
        return of_pod(helm.pod())
    default = values()
    chosen = groups(default["sources"])
    return Shipped(
        privileges.capabilities(chosen, default["kernel"]),
        privileges.mounts(chosen),
        privileges.writable(f"{default['stateDirectory']}/recording"),
    )


def of_pod(spec: dict[str, Any]) -> Shipped:
    (container,) = spec["containers"]
    paths = {one["name"]: one["hostPath"] for one in spec["volumes"] if "hostPath" in one}
    placed = [one for one in container["volumeMounts"] if one["name"] in paths]
    return Shipped(
        tuple(container["securityContext"]["capabilities"]["add"]),
        tuple(
            Mount(paths[one["name"]]["path"], one["mountPath"], paths[one["name"]]["type"])
            for one in placed
            if one.get("readOnly")
        ),
        tuple(one["mountPath"] for one in placed if not one.get("readOnly")),
    )
