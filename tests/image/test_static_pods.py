"""Static pods: where the kubelet looks, what it takes for a pod, and documents made to do harm."""

import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.image import static_pods
from exhume.image.document import DEEPEST, LARGEST_YAML, Malformed, at, from_yaml, parse, words
from tests.examples import examples
from tests.image.planted import Planted

KUBELET = {"/usr/bin/kubelet": "#!"}
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: proxy, namespace: kube-system}
spec:
  hostNetwork: true
  containers:
  - name: proxy
    image: registry.k8s.io/kube-proxy:v1.30.0
    command: [kube-proxy, --v=2]
    args: ["--token=abc123"]
  - image: busybox
"""


def test_a_manifest_is_a_service_that_never_stops_coming_back() -> None:
    (pod,) = static_pods.read(Planted({**KUBELET, "/etc/kubernetes/manifests/proxy.yaml": POD}))
    assert pod.name == "kube-system/proxy"
    assert pod.kind == "static-pod"
    assert pod.starts
    assert pod.pulled_by == ("kubelet",)
    assert pod.description == "registry.k8s.io/kube-proxy:v1.30.0 busybox"
    assert pod.command == ("kube-proxy --v=2 --token=***",)
    assert pod.restart is not None
    assert pod.restart.endless
    assert pod.restart.policy == "Always"
    assert "never ends" in pod.restart.why
    assert pod.cgroups


def test_json_is_read_as_well_and_never_restarts_if_it_says_so() -> None:
    document = {"kind": "Pod", "metadata": {"name": "once"}, "spec": {"restartPolicy": "Never", "containers": [{"image": "x"}]}}
    (pod,) = static_pods.read(Planted({**KUBELET, "/etc/kubernetes/manifests/once.json": json.dumps(document)}))
    assert pod.name == "default/once"
    assert pod.restart is not None
    assert not pod.restart.endless


@pytest.mark.parametrize(
    "files",
    [
        {"/var/lib/kubelet/config.yaml": "kind: KubeletConfiguration\nstaticPodPath: /srv/pods\n"},
        {"/etc/kubernetes/kubelet/kubelet-config.json": '{"staticPodPath": "/srv/pods"}'},
        {"/etc/systemd/system/kubelet.service": "[Service]\nExecStart=/usr/bin/kubelet --pod-manifest-path=/srv/pods\n"},
        {
            "/usr/lib/systemd/system/kubelet.service": "[Service]\nExecStart=/usr/bin/kubelet\n",
            "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf": "[Service]\nEnvironmentFile=-/etc/kubelet.env\n",
            "/etc/kubelet.env": 'ARGS="--pod-manifest-path /srv/pods"\n',
        },
        {
            "/usr/lib/systemd/system/kubelet.service": "[Service]\nExecStart=/usr/bin/kubelet --config /srv/kubelet.yaml\n",
            "/srv/kubelet.yaml": "staticPodPath: /srv/pods\n",
        },
        {"/etc/default/kubelet": "KUBELET_EXTRA_ARGS=--pod-manifest-path=/srv/pods\n"},
    ],
)
def test_the_place_is_found_wherever_the_kubelet_is_told(files: dict[str, str]) -> None:
    pods = {"/srv/pods/a.yaml": POD, "/etc/kubernetes/manifests/unread.yaml": POD.replace("proxy", "unread")}
    found = {pod.name: pod.starts for pod in static_pods.read(Planted({**KUBELET, **files, **pods}))}
    assert found["kube-system/proxy"]
    if any("staticPodPath" in text for text in files.values()):
        assert found["kube-system/unread"] is False


def test_a_flag_in_a_comment_sets_nothing() -> None:
    files = {"/etc/default/kubelet": "#ARGS=--pod-manifest-path=/srv/pods\n", "/srv/pods/a.yaml": POD}
    assert static_pods.read(Planted({**KUBELET, **files})) == []


def test_without_a_kubelet_the_pods_are_listed_and_do_not_start() -> None:
    (pod,) = static_pods.read(Planted({"/etc/kubernetes/manifests/a.yaml": POD}))
    assert not pod.starts
    assert pod.conditions == ("no kubelet is installed on this image",)


def test_k3s_has_a_place_of_its_own() -> None:
    (pod,) = static_pods.read(Planted({"/usr/local/bin/k3s": "#!", "/var/lib/rancher/k3s/agent/pod-manifests/a.yaml": POD}))
    assert pod.starts


def test_hidden_files_and_what_is_no_pod_are_left_out_and_the_unreadable_is_told() -> None:
    place = "/etc/kubernetes/manifests"
    files = {f"{place}/.a.yaml.swp": POD, f"{place}/job.yaml": "kind: Job\n", f"{place}/bad.yaml": "{[", f"{place}/empty": ""}
    tree = Planted({**KUBELET, **files})
    assert static_pods.read(tree) == []
    assert len(tree.troubles) == 1
    assert "bad.yaml" in tree.troubles[0]


def test_a_billion_laughs_stay_small() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 60)]
    lines += ["m0: &m0 {k: v}"] + [f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 9)}]}}" for n in range(1, 60)]
    tracemalloc.start()
    try:
        document = from_yaml("\n".join([*lines, POD]).encode())
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()
    assert at(document, "metadata", "name") == "proxy"


def test_what_is_too_deep_or_too_large_is_refused_with_a_reason() -> None:
    for text, why in ((b"[" * (DEEPEST + 5), "deep"), (b"a: " + b"x" * LARGEST_YAML, "128 KiB")):
        with pytest.raises(Malformed, match=why):
            from_yaml(text)
    with pytest.raises(Malformed):
        parse(b'{"a":' * 100_000)


def test_an_alias_to_itself_ends() -> None:
    document = from_yaml(b"a: &a [*a]\n")
    assert at(document, "a")[0] is at(document, "a")
    assert words(at(document, "a")) == []


@settings(max_examples=examples(100))
@given(st.one_of(st.binary(max_size=200), st.text("abk:{}[]&*<>|-\n \"'!%@#,?\t", max_size=60).map(str.encode)))
def test_any_bytes_are_a_document_or_a_reason(text: bytes) -> None:
    tree = Planted({**KUBELET, "/etc/kubernetes/manifests/a": text, "/var/lib/kubelet/config.yaml": text})
    pods = static_pods.read(tree)
    assert all("\n" not in trouble for trouble in tree.troubles)
    try:
        document = parse(text)
    except Malformed:
        assert pods == []
        assert tree.troubles
        return
    assert bool(pods) == (static_pods.service(document, "/a", "") is not None)


KEYS = ["kind", "metadata", "name", "namespace", "spec", "containers", "image", "command", "args", "restartPolicy"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=15,
)


@settings(max_examples=examples(60))
@given(JSON)
def test_any_document_is_a_pod_or_none(document: object) -> None:
    pod = static_pods.service(document, "/a", "")
    assert pod is None or pod.restart is not None


@settings(max_examples=examples(60))
@given(JSON, JSON)
def test_any_pod_with_anything_in_it_is_a_service(spec: object, name: object) -> None:
    pod = static_pods.service({"kind": "Pod", "metadata": {"name": name}, "spec": spec}, "/a", "")
    assert (pod is not None) == (isinstance(name, str) and bool(name))
