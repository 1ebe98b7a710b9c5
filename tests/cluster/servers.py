"""A real API server for the tests: etcd, kube-apiserver, kwok (which plays the kubelets) and more, built with Go into a cache.

`python -m tests.cluster.servers` builds what is not there yet (about twenty minutes on two cores, once); a test only uses what
it finds, and skips with the reason otherwise. Everything comes from the Go module proxy that this machine's Go is set to.
"""

import contextlib
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from exhume.cluster.client import Client
from exhume.cluster.kubeconfig import Access

KUBERNETES = "1.36.1"
ETCD = "3.6.8"
KWOK = "0.8.0"
HELM = "3.22.0"
DETECTOR = "1.34.0"

# What kubernetes/staging holds: in k8s.io/kubernetes itself they are v0.0.0, replaced by directories that modules do not carry.
STAGING = """api apiextensions-apiserver apimachinery apiserver cli-runtime client-go cloud-provider cluster-bootstrap
code-generator component-base component-helpers controller-manager cri-api cri-client cri-streaming csi-translation-lib
dynamic-resource-allocation endpointslice externaljwt kms kube-aggregator kube-controller-manager kube-proxy kube-scheduler
kubectl kubelet metrics mount-utils pod-security-admission sample-apiserver sample-cli-plugin sample-controller
streaming""".split()

# What each is: the module, its version, the package that is built.
PROGRAMS = {
    "etcd": ("go.etcd.io/etcd/server/v3", ETCD, "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": ("k8s.io/kubernetes", KUBERNETES, "k8s.io/kubernetes/cmd/kube-apiserver"),
    "kube-controller-manager": ("k8s.io/kubernetes", KUBERNETES, "k8s.io/kubernetes/cmd/kube-controller-manager"),
    "kwok": ("sigs.k8s.io/kwok", KWOK, "sigs.k8s.io/kwok/cmd/kwok"),
    "helm": ("helm.sh/helm/v3", HELM, "helm.sh/helm/v3/cmd/helm"),
    "node-problem-detector": (
        "k8s.io/node-problem-detector",
        DETECTOR,
        "k8s.io/node-problem-detector/cmd/nodeproblemdetector",
    ),
}
# Of node-problem-detector only what runs plugins: its other monitors need the headers of systemd, or a cloud.
TAGS = {"node-problem-detector": "disable_system_log_monitor,disable_system_stats_monitor,disable_stackdriver_exporter"}
_READY_S = 60.0


def directory() -> Path:
    """`$XDG_CACHE_HOME/exhume-kubernetes`. The base directory specification says to ignore a relative one."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return Path(base if os.path.isabs(base) else os.path.expanduser("~/.cache")) / "exhume-kubernetes"


def program(name: str) -> Path:
    """Where it is, by version, so that another version is another file."""
    return directory() / f"{name}-{PROGRAMS[name][1]}"


def needed(*names: str) -> None:
    """Skip the test where they are not built."""
    if missing := [name for name in names if not os.access(program(name), os.X_OK)]:
        pytest.skip(f"{', '.join(missing)} not built; run python -m tests.cluster.servers")


def go_mod(module: str, version: str, package: str) -> str:
    """`tool` (Go 1.24) has tidy keep what a program needs that nothing imports."""
    text = f"module exhume.test/servers\n\ngo 1.26.0\n\ntool {package}\n\nrequire {module} v{version}\n"
    if module == "k8s.io/kubernetes":
        minor = version.removeprefix("1.")
        lines = (f"\tk8s.io/{name} => k8s.io/{name} v0.{minor}" for name in STAGING)
        text += "\nreplace (\n" + "\n".join(lines) + "\n)\n"
    return text


def build(name: str) -> None:
    """Into a scratch directory, then renamed: a build that was ended leaves nothing that looks whole."""
    module, version, package = PROGRAMS[name]
    with tempfile.TemporaryDirectory(prefix="scratch-", dir=directory()) as scratch:
        Path(scratch, "go.mod").write_text(go_mod(module, version, package))
        made = ["go", "build", "-mod=mod", "-trimpath", "-tags", TAGS.get(name, ""), "-o", "built", package]
        for command in (["go", "mod", "tidy"], made):
            subprocess.run(["nice", "-n", "19", *command], cwd=scratch, check=True)
        os.rename(Path(scratch, "built"), program(name))


def main(names: Sequence[str]) -> None:
    if shutil.which("go") is None:
        sys.exit("Go is not installed")
    directory().mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(directory() / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in names or PROGRAMS:
            if not program(name).exists():
                print(f"building {name}", flush=True)
                build(name)


@dataclass(frozen=True, slots=True)
class Cluster:
    address: str
    authority: bytes
    directory: Path
    tokens: dict[str, str]

    def client(self, user: str = "admin") -> Client:
        return Client(Access(self.address, self.authority, token=self.tokens[user], described=f"the test's {user}"))

    def kubeconfig(self, user: str = "admin") -> Path:
        path = self.directory / f"{user}.kubeconfig"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
            "clusters": [{"name": "test", "cluster": {"server": self.address, "certificate-authority": "ca.crt"}}],
            "users": [{"name": user, "user": {"token": self.tokens[user]}}],
        }
        path.write_text(json.dumps(document))
        return path


USERS = ("admin", "agent", "drainer", "nobody")


@contextlib.contextmanager
def running(scratch: Path) -> Iterator[Cluster]:
    """etcd and the API server on loopback, with RBAC; only `admin` may do anything at first."""
    needed("etcd", "kube-apiserver")
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    key = scratch / "account.key"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    _certificates(scratch)
    tokens = {user: f"token-of-{user}" for user in USERS}
    groups = {"admin": ',"system:masters"'}
    (scratch / "tokens.csv").write_text("".join(f"{tokens[one]},{one},{one}{groups.get(one, '')}\n" for one in USERS))
    client, peer, secure = (_free_port() for _ in range(3))
    etcd: list[str | Path] = [program("etcd"), "--data-dir", scratch / "etcd", "--unsafe-no-fsync", "--log-level", "error"]
    for kind, port in (("client", client), ("peer", peer)):
        etcd += [f"--listen-{kind}-urls", f"http://127.0.0.1:{port}"]
    etcd += ["--advertise-client-urls", f"http://127.0.0.1:{client}"]
    server: list[str | Path] = [
        program("kube-apiserver"),
        "--etcd-servers",
        f"http://127.0.0.1:{client}",
        "--bind-address",
        "127.0.0.1",
    ]
    server += ["--secure-port", str(secure), "--cert-dir", scratch / "certificates", "--authorization-mode", "Node,RBAC"]
    server += ["--service-account-issuer", "https://exhume.test", "--service-account-key-file", key]
    server += ["--service-account-signing-key-file", key, "--token-auth-file", scratch / "tokens.csv"]
    server += ["--client-ca-file", scratch / "clients.crt", "--allow-privileged"]
    # Nobody makes accounts for namespaces here: that is a controller of kube-controller-manager.
    server += ["--service-cluster-ip-range", "10.0.0.0/24", "--disable-admission-plugins", "ServiceAccount"]
    with _started(etcd, scratch / "etcd.log"), _started(server, scratch / "apiserver.log") as process:
        certificate = scratch / "certificates" / "apiserver.crt"
        address = f"https://127.0.0.1:{secure}"
        _await_ready(process, certificate, address, tokens["admin"], scratch / "apiserver.log")
        shutil.copy(certificate, scratch / "ca.crt")
        yield Cluster(address, certificate.read_bytes(), scratch, tokens)


# What kwok does with nodes and pods: every node Ready, every pod Running, and gone when it is deleted.
_READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "played by kwok"}
_STAGES: list[tuple[str, str, list[dict[str, object]], dict[str, object]]] = [
    (
        "node-ready",
        "Node",
        [{"key": '.status.conditions.[] | select( .type == "Ready" ) | .status', "operator": "NotIn", "values": ["True"]}],
        {"statusTemplate": json.dumps({"conditions": [_READY], "nodeInfo": {"bootID": "first"}})},
    ),
    (
        "pod-runs",
        "Pod",
        [
            {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"},
            {"key": ".status.phase", "operator": "In", "values": ["Pending"]},
        ],
        {"statusTemplate": json.dumps({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})},
    ),
    ("pod-ends", "Pod", [{"key": ".metadata.deletionTimestamp", "operator": "Exists"}], {"delete": True}),
]


def _stages() -> str:
    documents = [
        {
            "apiVersion": "kwok.x-k8s.io/v1alpha1",
            "kind": "Stage",
            "metadata": {"name": name},
            "spec": {"resourceRef": {"apiGroup": "v1", "kind": kind}, "selector": {"matchExpressions": when}, "next": then},
        }
        for name, kind, when, then in _STAGES
    ]
    return "\n---\n".join(map(json.dumps, documents))


@contextlib.contextmanager
def kubelets(cluster: Cluster) -> Iterator[None]:
    """kwok: every node is kept Ready, every pod bound to one runs, and one that is deleted ends after its grace."""
    needed("kwok")
    stages = cluster.directory / "stages.yaml"
    stages.write_text(_stages())
    command: list[str | Path] = [
        program("kwok"),
        "--kubeconfig",
        cluster.kubeconfig(),
        "--config",
        stages,
        "--manage-all-nodes",
    ]
    with _started(command, cluster.directory / "kwok.log"):
        yield


def _certificates(scratch: Path) -> None:
    """client.crt and client.key: somebody who may do anything, by certificate."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=scratch, check=True, capture_output=True)

    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl("req", "-x509", *new, "-keyout", "clients.key", "-out", "clients.crt", "-subj", "/CN=clients", "-days", "2")
    openssl("req", *new, "-keyout", "client.key", "-out", "client.csr", "-subj", "/O=system:masters/CN=by-certificate")
    signed = ("-CA", "clients.crt", "-CAkey", "clients.key", "-CAcreateserial", "-out", "client.crt", "-days", "2")
    openssl("x509", "-req", "-in", "client.csr", *signed)


def _await_ready(process: subprocess.Popen[bytes], certificate: Path, address: str, token: str, log: Path) -> None:
    import ssl

    end = time.monotonic() + _READY_S
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError):
            context = ssl.create_default_context(cafile=certificate)
            asked = urllib.request.Request(f"{address}/readyz", headers={"Authorization": f"Bearer {token}"})
            with urllib.request.urlopen(asked, context=context, timeout=5) as answer:
                if answer.status == 200:
                    return
        time.sleep(0.2)
    raise AssertionError(f"the API server did not come up: {log.read_text(errors='replace')[-2000:]}")


@contextlib.contextmanager
def _started(command: Sequence[str | Path], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    file: IO[bytes]
    with open(log, "wb") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


if __name__ == "__main__":
    main(sys.argv[1:])
