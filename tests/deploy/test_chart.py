"""The chart: what Helm makes of it, whether it asks for what the sources need, and whether a real API server takes it."""

import itertools
import json
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from exhume.agent import privileges
from exhume.agent.rules import Making, printed
from exhume.agent.settings import read
from exhume.cluster.replies import Forbidden
from exhume.cluster.rights import AGENT
from tests.cluster import servers
from tests.deploy import helm, shipped
from tests.deploy.shipped import SWITCHES

RUNTIMES = ("containerd", "k3s", "docker", "cri-o", "none")
EVERYTHING = (
    "sources.dbus=true",
    "sources.ethtool=true",
    "sources.userStacks=all",
    "sources.audit=true",
    "kernel=before-5.8",
    "serviceMonitor.enabled=true",
    "prometheusRule.enabled=true",
    "agent.push.url=https://profiles.test",
    "agent.tls_cert=/etc/exhume-secret/tls.crt",
    "agent.tls_key=/etc/exhume-secret/tls.key",
    "secret=certificate",
)


def _cases() -> Iterator[tuple[tuple[str, ...], tuple[str, ...], privileges.Kernel]]:
    """Each switch alone and all together, each runtime, each kernel."""
    on = {switch: f"sources.{switch}={'host' if switch == 'userStacks' else 'true'}" for switch in SWITCHES}
    off = [f"sources.{switch}={'none' if switch == 'userStacks' else 'false'}" for switch in SWITCHES]
    for chosen in [(), *((one,) for one in SWITCHES), tuple(SWITCHES)]:
        settings = [*off, *(on[one] for one in chosen), "sources.runtime=none"]
        yield tuple(settings), tuple(SWITCHES[one] for one in chosen), "current"
    for runtime in RUNTIMES:
        yield (*off, f"sources.runtime={runtime}"), (f"runtime={runtime}",), "current"
    for kernel in privileges.KERNELS:
        yield (*off, "sources.runtime=none", f"kernel={kernel}"), (), kernel


@pytest.mark.parametrize(("settings", "groups", "kernel"), list(_cases()))
def test_capabilities_and_mounts_are_what_the_sources_need(
    settings: tuple[str, ...], groups: tuple[str, ...], kernel: privileges.Kernel
) -> None:
    spec = helm.pod(*settings)
    (container,) = spec["containers"]
    assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    found = shipped.of_pod(spec)
    assert found.capabilities == privileges.capabilities(groups, kernel)
    assert set(found.mounts) == set(privileges.mounts(groups))
    assert found.writable == privileges.writable("/var/lib/exhume/recording")
    read_only = [one for one in container["volumeMounts"] if one["name"].startswith("host")]
    assert all(one["readOnly"] and one["recursiveReadOnly"] == "IfPossible" for one in read_only)


def test_the_values_say_what_is_rendered_by_default() -> None:
    """Tests that run where there is no Helm take the defaults from the values."""
    default = shipped.values()
    groups = shipped.groups(default["sources"])
    found = shipped.of_pod(helm.pod())
    assert found.capabilities == privileges.capabilities(groups, default["kernel"])
    assert set(found.mounts) == set(privileges.mounts(groups))


def test_by_default_nothing_is_asked_for_that_makes_root_of_the_host() -> None:
    found = shipped.chart()
    assert not set(found.capabilities) & set(privileges.HOST_ROOT)
    assert not {one.path for one in found.mounts} & {"/", "/run", "/run/dbus", "/run/systemd", "/etc", "/var", "/var/lib"}
    assert not [path for path in found.writable if path.rpartition("/")[0] != "/var/lib/exhume"]
    assert "/var/lib/exhume" not in found.writable


def test_the_container_is_as_closed_as_it_can_be() -> None:
    spec = helm.pod()
    (container,) = spec["containers"]
    security = container["securityContext"]
    assert (security["privileged"], security["allowPrivilegeEscalation"], security["readOnlyRootFilesystem"]) == (
        False,
        False,
        True,
    )
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert "hostNetwork" not in spec
    assert spec["hostPID"]
    writable = [one["mountPath"] for one in container["volumeMounts"] if not one.get("readOnly")]
    assert writable == ["/var/lib/exhume/recording", "/var/lib/exhume/recording.spool", "/tmp"]
    assert container["resources"]["limits"]["memory"]
    assert spec["tolerations"] == [{"operator": "Exists"}]


def test_the_agent_reads_the_configuration_that_is_rendered(tmp_path: Path) -> None:
    settings = ("agent.hz=97", "agent.cpu_limit_ratio=0.05", 'agent.push.namespaces=["a","b"]', "thresholds.zombies_warning=10")
    text = helm.of_kind("ConfigMap", *settings, "sources.userStacks=host")["data"]["exhume.toml"]
    path = tmp_path / "exhume.toml"
    path.write_text(text.replace("zombies_warning = 10", ""))
    read_back, _ = read(str(path))
    assert (read_back.hz, read_back.cpu_limit_ratio, read_back.push.namespaces) == (97, 0.05, ("a", "b"))
    assert read_back.audit.every_h == 0
    assert read_back.user_stacks == "host"
    assert "[thresholds]\nzombies_warning = 10" in text


def test_the_arguments_are_those_of_the_command() -> None:
    from exhume.cli.main import command_parser

    (container,) = helm.pod()["containers"]
    assert container["command"] == ["exhume", "agent"]
    args = command_parser("agent").parse_args(container["args"])
    assert (args.dir, args.host, args.listen) == ("/var/lib/exhume/recording", privileges.HOST, "0.0.0.0:9464")


def test_the_pod_knows_which_node_it_is_on() -> None:
    from exhume.sources.facts import NAME

    (container,) = helm.pod()["containers"]
    named = {one["name"]: one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath") for one in container["env"]}
    assert named[NAME] == named["EXHUME_AGENT_KUBERNETES_NODE_NAME"] == "spec.nodeName"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("kernel=4.4", "/kernel"),
        ("sources.typo=true", "typo"),
        ("agent.dir=/elsewhere", "/agent/dir"),
        ("port=0", "/port"),
        ("seccompProfile.type=Localhost", "/seccompProfile/localhostProfile"),
        ("image.digest=sha256:short", "/image/digest"),
        ("secret=A_B", "/secret"),
        ("prometheusRule.docsUrl=docs", "/prometheusRule/docsUrl"),
        ("sources.systemd=true", "systemd"),
        ("appArmorProfile.type=Localhost", "/appArmorProfile/localhostProfile"),
        ("seLinuxOptions.typo=spc_t", "typo"),
        ("recursiveReadOnly=Disabled", "/recursiveReadOnly"),
        ("conditions.ownNodeOnly=sometimes", "/conditions/ownNodeOnly"),
    ],
)
def test_the_schema_refuses_what_cannot_be_meant(setting: str, said: str) -> None:
    done = helm.rendered(setting)
    assert done.returncode != 0
    assert said in done.stderr


def test_every_value_is_in_the_schema_and_the_other_way_round() -> None:
    values = yaml.safe_load((helm.CHART / "values.yaml").read_text())
    schema = json.loads((helm.CHART / "values.schema.json").read_text())
    assert _keys(values) <= _described(schema)
    named = {one for one in _described(schema) if not one.startswith(("global", "agent.", "imagePullSecrets."))}
    assert named <= _keys(values)


def _keys(values: dict[str, Any], prefix: str = "") -> set[str]:
    found = set()
    for key, value in values.items():
        found.add(prefix + key)
        if isinstance(value, dict) and key not in ("resources", "nodeSelector", "updateStrategy"):
            found |= _keys(value, f"{prefix}{key}.")
    return found


def _described(schema: dict[str, Any], prefix: str = "") -> set[str]:
    found = set()
    for key, one in schema.get("properties", {}).items():
        found.add(prefix + key)
        if isinstance(one, dict):
            found |= _described(one, f"{prefix}{key}.")
    return found


def test_the_rules_are_those_of_the_agent() -> None:
    rule = helm.of_kind("PrometheusRule", "prometheusRule.enabled=true")
    assert rule["spec"] == yaml.safe_load((helm.TOP / "deploy/prometheus/exhume-agent.yml").read_text())
    monitor = helm.of_kind("ServiceMonitor", "serviceMonitor.enabled=true")
    (endpoint,) = monitor["spec"]["endpoints"]
    assert {one["targetLabel"] for one in endpoint["relabelings"]} == {"instance", "job"}
    service = helm.of_kind("Service", "serviceMonitor.enabled=true")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert service["spec"]["ports"][0]["name"] == endpoint["port"]


def test_the_role_is_what_the_agent_asks_for() -> None:
    rules = helm.of_kind("ClusterRole")["rules"]
    given = {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert given == {(right.group, right.resource, right.verb) for right in AGENT}


def test_the_rules_lead_to_where_the_documentation_is() -> None:
    settings = ("prometheusRule.enabled=true", "prometheusRule.docsUrl=https://git.example.org/x/docs/")
    made = printed("agent", Making(docs="https://git.example.org/x/docs"))
    assert helm.of_kind("PrometheusRule", *settings)["spec"] == yaml.safe_load(made)


def test_with_a_certificate_everybody_asks_by_tls() -> None:
    plain, by_tls = (helm.of_kind("DaemonSet", *settings)["spec"]["template"] for settings in ((), EVERYTHING[-3:]))
    for template, scheme in ((plain, None), (by_tls, "HTTPS")):
        (container,) = template["spec"]["containers"]
        probes = [container[f"{name}Probe"]["httpGet"].get("scheme") for name in ("liveness", "readiness")]
        assert probes == [scheme, scheme]
        assert template["metadata"]["annotations"].get("prometheus.io/scheme") == (scheme and scheme.lower())
    monitor = helm.of_kind("ServiceMonitor", *EVERYTHING, "serviceMonitor.endpoint.tlsConfig.serverName=exhume")
    (endpoint,) = monitor["spec"]["endpoints"]
    assert (endpoint["scheme"], endpoint["tlsConfig"]) == ("https", {"serverName": "exhume"})


def test_a_secret_is_mounted_for_root_alone() -> None:
    spec = helm.pod("secret=certificate")
    (volume,) = (one["secret"] for one in spec["volumes"] if one["name"] == "secret")
    assert volume == {"secretName": "certificate", "defaultMode": 0o400}
    (mounted,) = (one for one in spec["containers"][0]["volumeMounts"] if one["name"] == "secret")
    assert (mounted["mountPath"], mounted["readOnly"]) == ("/etc/exhume-secret", True)
    assert "secret" not in [one["name"] for one in helm.pod()["volumes"]]


def test_the_settings_for_conditions_come_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    (container,) = helm.pod()["containers"]
    for one in container["env"]:
        monkeypatch.setenv(one["name"], one.get("value", "worker-7"))
    settings, _ = read()
    assert (settings.kubernetes.enabled, settings.kubernetes.node_name) == (True, "worker-7")


def test_profiles_of_the_nodes_security_modules_are_set_where_they_are_asked_for() -> None:
    assert set(helm.pod()["securityContext"]) == {"seccompProfile"}
    settings = ("appArmorProfile.type=Localhost", "appArmorProfile.localhostProfile=exhume", "seLinuxOptions.type=spc_t")
    security = helm.pod(*settings)["securityContext"]
    assert security["appArmorProfile"] == {"type": "Localhost", "localhostProfile": "exhume"}
    assert security["seLinuxOptions"] == {"type": "spc_t"}


def test_the_pod_goes_to_nodes_of_the_images_machine() -> None:
    assert helm.pod()["nodeSelector"] == {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    other = helm.pod("nodeSelector.kubernetes\\.io/arch=arm64")["nodeSelector"]
    assert other == {"kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64"}


def test_egress_is_closed_where_it_is_asked_for() -> None:
    assert helm.of_kind("NetworkPolicy")["spec"]["policyTypes"] == ["Ingress"]
    rules = 'networkPolicy.egress.rules=[{"ports":[{"port":6443,"protocol":"TCP"}]}]'
    spec = helm.of_kind("NetworkPolicy", "networkPolicy.egress.enabled=true", rules)["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["egress"] == [{"ports": [{"port": 6443, "protocol": "TCP"}]}]


def test_the_token_is_bound_to_its_node_where_the_server_can() -> None:
    policies = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"

    def made(*settings: str) -> list[str]:
        return [one["kind"] for one in helm.objects(*settings) if one["kind"] in policies]

    assert made() == []  # Helm was not told that the server has them
    assert made("conditions.ownNodeOnly=always") == [*policies]
    assert made("conditions.ownNodeOnly=never") == []
    assert made("conditions.ownNodeOnly=always", "conditions.enabled=false") == []
    servers.needed("helm")
    has = ["--api-versions", f"admissionregistration.k8s.io/v1/{policies[0]}"]
    command = [str(servers.program("helm")), "template", "node", str(helm.CHART), *has]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert [one["kind"] for one in yaml.safe_load_all(done.stdout) if one and one["kind"] in policies] == [*policies]


def test_without_conditions_it_has_no_rights_and_no_token() -> None:
    found = helm.objects("conditions.enabled=false")
    assert not [one for one in found if "Role" in one["kind"]]
    assert not helm.pod("conditions.enabled=false")["automountServiceAccountToken"]


def test_the_versions_are_the_packages() -> None:
    from exhume import __version__

    chart = yaml.safe_load((helm.CHART / "Chart.yaml").read_text())
    assert __version__.startswith(chart["appVersion"])


def test_it_is_rendered_without_a_word_about_the_version_of_the_cluster() -> None:
    """Helm then takes the version of its client library (3.22: 1.37); one built without its Makefile, as ours, takes 1.20."""
    servers.needed("helm")
    command = [str(servers.program("helm")), "template", "node", str(helm.CHART)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    kinds = {one["kind"] for one in yaml.safe_load_all(done.stdout) if one}
    assert kinds >= {"DaemonSet", "ClusterRole", "NetworkPolicy"}
    # Every version that it names is older than the oldest cluster it says it is for: apps/v1 1.9, networking 1.7, rbac 1.8.
    assert {one["apiVersion"] for one in yaml.safe_load_all(done.stdout) if one} == {
        "v1",
        "apps/v1",
        "rbac.authorization.k8s.io/v1",
        "networking.k8s.io/v1",
    }


def test_helm_has_nothing_to_complain_of() -> None:
    servers.needed("helm")
    done = subprocess.run(
        [servers.program("helm"), "lint", "--strict", helm.CHART], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout
    assert "WARNING" not in done.stdout


PLACES = {
    "DaemonSet": "/apis/apps/v1/namespaces/watch/daemonsets",
    "ConfigMap": "/api/v1/namespaces/watch/configmaps",
    "Service": "/api/v1/namespaces/watch/services",
    "ServiceAccount": "/api/v1/namespaces/watch/serviceaccounts",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/watch/networkpolicies",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
}
_OPERATORS = ("ServiceMonitor", "PrometheusRule")  # of the Prometheus operator, which has to be there to know them


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Cluster]:
    with servers.running(tmp_path_factory.mktemp("cluster")) as made:
        with made.client() as client:
            client.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "watch"}})
        yield made


@pytest.mark.ci
@pytest.mark.parametrize(
    "settings", [(), EVERYTHING, ("kernel=before-5.11", "sources.runtime=cri-o", "conditions.ownNodeOnly=always")]
)
def test_a_real_api_server_takes_every_object(cluster: servers.Cluster, settings: tuple[str, ...]) -> None:
    """A dry run on the server, and strict: a field that it does not know is an error."""
    taken = set()
    with cluster.client() as client:
        for one in helm.objects(*settings):
            if one["kind"] in _OPERATORS:
                continue
            answer = client.create(PLACES[one["kind"]], one, dryRun="All", fieldValidation="Strict")
            assert answer["kind"] == one["kind"]
            taken.add(one["kind"])
    assert taken >= {"DaemonSet", "ConfigMap", "NetworkPolicy", "ClusterRole", "ClusterRoleBinding", "ServiceAccount"}


@pytest.mark.ci
def test_the_rights_are_for_conditions_and_events_of_nodes_and_for_nothing_else(cluster: servers.Cluster) -> None:
    """The chart's role, bound to a user of the test, who then tries more than that."""
    role = helm.of_kind("ClusterRole")
    binding = helm.of_kind("ClusterRoleBinding")
    binding["subjects"] = [{"kind": "User", "name": "agent", "apiGroup": "rbac.authorization.k8s.io"}]
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "one"}}
    with cluster.client() as admin:
        for kind, one in (("ClusterRole", role), ("ClusterRoleBinding", binding)):
            admin.create(PLACES[kind], one)
        admin.create("/api/v1/nodes", node)
    condition = {"type": "MemoryCgroupLeak", "status": "True", "reason": "MemoryCgroupsLeak", "message": "a test"}
    strategic = "application/strategic-merge-patch+json"
    with cluster.client("agent") as agent:
        assert agent.get("/api/v1/nodes/one")["kind"] == "Node"
        agent.patch("/api/v1/nodes/one/status", {"status": {"conditions": [condition]}}, strategic)
        for method, path in itertools.product(("get",), ("/api/v1/pods", "/api/v1/secrets", "/api/v1/nodes")):
            with pytest.raises(Forbidden):
                getattr(agent, method)(path)
        with pytest.raises(Forbidden, match="patch"):
            agent.patch("/api/v1/nodes/one", {"spec": {"unschedulable": True}}, strategic)


@pytest.mark.ci
def test_a_token_changes_the_status_of_its_own_node_and_of_no_other(cluster: servers.Cluster) -> None:
    """An administrator impersonates the agent with the claims that the API server makes of a pod's token."""
    policy = helm.of_kind("ValidatingAdmissionPolicy", "conditions.ownNodeOnly=always")
    binding = helm.of_kind("ValidatingAdmissionPolicyBinding", "conditions.ownNodeOnly=always")
    role, bound = helm.of_kind("ClusterRole"), helm.of_kind("ClusterRoleBinding")
    for one in (role, bound):
        one["metadata"]["name"] = "own-node"
    bound["roleRef"]["name"] = "own-node"
    user = "system:serviceaccount:watch:node-exhume"
    bound["subjects"] = [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}]
    with cluster.client() as admin:
        for one in (policy, binding, role, bound):
            admin.create(PLACES[one["kind"]], one)
        for name in ("mine", "other"):
            admin.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})

    def patched(node: str, claim: str) -> tuple[int, str]:
        """The HTTP status of a patch of a node's status by a token with this claim."""
        told = {"status": {"conditions": [{"type": "MemoryCgroupLeak", "status": "False", "reason": "x", "message": "x"}]}}
        headers = {
            "Authorization": f"Bearer {cluster.tokens['admin']}",
            "Content-Type": "application/strategic-merge-patch+json",
            "Impersonate-User": user,
        }
        if claim:
            headers["Impersonate-Extra-authentication.kubernetes.io%2Fnode-name"] = claim
        address = f"{cluster.address}/api/v1/nodes/{node}/status"
        request = urllib.request.Request(address, json.dumps(told).encode(), headers, method="PATCH")
        context = ssl.create_default_context(cadata=cluster.authority.decode())
        try:
            with urllib.request.urlopen(request, context=context, timeout=300) as answer:
                return answer.status, ""
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    until = time.monotonic() + 120
    while patched("other", "mine")[0] == 200:  # the server reads new policies within a second or two
        assert time.monotonic() < until
        time.sleep(0.2)
    assert patched("mine", "mine") == (200, "")
    code, said = patched("other", "mine")
    assert code == 403
    assert "its own node only" in said
    assert patched("mine", "")[0] == 403
