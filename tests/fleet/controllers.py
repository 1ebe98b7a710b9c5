"""The Job controller for the tests, and the part of a kubelet that kwok does not play: logs, and how pods end.

Where kube-controller-manager is built it is the real one; where it is not, a thread does the little of it that is needed here:
one pod of each Job, the deadline, the end, and pods deleted with their Job.
"""

import contextlib
import http.server
import os
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from exhume.cluster.client import ApiError, Client
from exhume.cluster.document import list_in, seconds, stamp, text_in
from tests.cluster.objects import make_node
from tests.cluster.servers import Cluster, program

# What is needed of it: pods of Jobs, those that ended deleted in time, and what was made by something deleted with it.
_CONTROLLERS = "job-controller,ttl-after-finished-controller,garbage-collector-controller"
Manifest = dict[str, Any]


def real() -> bool:
    return os.access(program("kube-controller-manager"), os.X_OK)


@contextlib.contextmanager
def controllers(cluster: Cluster) -> Iterator[None]:
    if not real():
        with _played_controller(cluster):
            yield
        return
    command: list[str | Path] = [
        program("kube-controller-manager"),
        "--kubeconfig",
        cluster.kubeconfig(),
        "--leader-elect=false",
    ]
    command += [f"--controllers={_CONTROLLERS}", "--secure-port=0"]
    with open(cluster.directory / "controllers.log", "wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(120)


@contextlib.contextmanager
def _played_controller(cluster: Cluster) -> Iterator[None]:
    over = threading.Event()

    def act() -> None:
        with cluster.client() as client:
            while not over.wait(0.1):
                jobs = {job["metadata"]["uid"]: job for job in client.list("/apis/batch/v1/jobs")}
                pods = {text_in(pod, "metadata", "labels", "controller-uid"): pod for pod in client.list("/api/v1/pods")}
                for uid, pod in pods.items():
                    if uid and uid not in jobs:
                        _delete(client, pod)
                for uid, job in jobs.items():
                    with contextlib.suppress(ApiError):
                        _step(client, uid, job, pods.get(uid))

    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _step(client: Client, uid: str, job: Manifest, pod: Manifest | None) -> None:
    meta, spec = job["metadata"], job["spec"]
    namespace, name = meta["namespace"], meta["name"]
    place = f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}"
    if list_in(job, "status", "conditions"):
        return
    begun = seconds(meta["creationTimestamp"]) or 0.0
    if time.time() > begun + spec["activeDeadlineSeconds"] + 1:
        _end(client, place, "Failed", "DeadlineExceeded")
        if pod is not None:
            _delete(client, pod)
    elif pod is None:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
        labels = {**spec["template"]["metadata"]["labels"], "controller-uid": uid}
        body = {
            "metadata": {"name": f"{name}-x", "labels": labels, "ownerReferences": [owner]},
            "spec": spec["template"]["spec"],
        }
        try:
            client.create(f"/api/v1/namespaces/{namespace}/pods", body)
        except ApiError as error:
            about = {"kind": "Job", "name": name, "namespace": namespace, "uid": uid}
            event = {"metadata": {"generateName": "x-"}, "involvedObject": about, "type": "Warning", "message": str(error)}
            client.create(f"/api/v1/namespaces/{namespace}/events", event)
    elif (phase := text_in(pod, "status", "phase")) in ("Succeeded", "Failed"):
        _end(client, place, "Complete" if phase == "Succeeded" else "Failed", "BackoffLimitExceeded" * (phase == "Failed"))


def _end(client: Client, place: str, kind: str, reason: str) -> None:
    """The conditions that the API server wants before the last one (pkg/registry/batch/job, ValidateJobStatus)."""
    now = stamp(time.time())
    before = "SuccessCriteriaMet" if kind == "Complete" else "FailureTarget"
    marks = {"status": "True", "reason": reason, "lastTransitionTime": now, "lastProbeTime": now}
    status: Manifest = {"startTime": now, "conditions": [{"type": one, **marks} for one in (before, kind)]}
    if kind == "Complete":
        status |= {"completionTime": now, "succeeded": 1}
    client.patch(f"{place}/status", {"status": status})


def _delete(client: Client, pod: Manifest) -> None:
    meta = pod["metadata"]
    with contextlib.suppress(ApiError):
        client.request("DELETE", f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}")


class Logs:
    """What the kubelet's /containerLogs/NAMESPACE/POD/CONTAINER answers, by the name of the Job that the pod is of: the API
    server fetches logs from there. It does not check the kubelet's certificate unless it is told by what."""

    def __init__(self, cluster: Cluster) -> None:
        self.said: dict[str, bytes] = {}
        self.asked: list[str] = []
        logs = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                logs.asked.append(self.path)
                body = logs.said.get(self.path.split("/")[3].rpartition("-")[0], b"")
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cluster.directory / "client.crt", cluster.directory / "client.key")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def node(self, client: Client) -> str:
        """A node whose kubelet is this one."""
        name = make_node(client)
        self.serves(client, name, self.server.server_address[1])
        return name

    def serves(self, client: Client, name: str, port: int) -> None:
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        client.patch(f"/api/v1/nodes/{name}/status", {"status": status})


def terminated(code: int, **more: str) -> Manifest:
    return {"terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error", **more}}


def ending(code: int, **more: str) -> Manifest:
    """The status of a pod whose container ended."""
    container = {"name": "fix", "image": "none", "imageID": "", "ready": False, "restartCount": 0}
    return {
        "phase": "Succeeded" if code == 0 else "Failed",
        "containerStatuses": [{**container, "state": terminated(code, **more)}],
    }


def waiting(reason: str, message: str) -> Manifest:
    container = {"name": "fix", "image": "none", "imageID": "", "ready": False, "restartCount": 0}
    return {"containerStatuses": [{**container, "state": {"waiting": {"reason": reason, "message": message}}}]}


@contextlib.contextmanager
def played(cluster: Cluster, node: str, status: Manifest, namespace: str = "default") -> Iterator[list[Manifest]]:
    """The container on that node: as soon as its pod runs it comes to this. The pods that were seen are in the list."""
    seen: list[Manifest] = []
    over = threading.Event()

    def act() -> None:
        with cluster.client() as client:
            path = f"/api/v1/namespaces/{namespace}/pods"
            while not over.is_set() and not seen:
                for pod in client.list(path, fieldSelector=f"spec.nodeName={node},status.phase=Running"):
                    seen.append(pod)
                    client.patch(f"{path}/{pod['metadata']['name']}/status", {"status": status})
                time.sleep(0.05)

    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def faster(times: float) -> tuple[Callable[[], float], Callable[[float], None]]:
    """A clock on which waiting takes a part of the time."""
    return (lambda: time.monotonic() * times), (lambda seconds: time.sleep(seconds / times))
