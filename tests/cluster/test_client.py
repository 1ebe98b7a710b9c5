"""The client against a real API server: every way to say who we are, and what it says when it does not work."""

import json
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from exhume.cluster.client import Client, connect
from exhume.cluster.identity import Exec
from exhume.cluster.kubeconfig import Access, find, in_cluster
from exhume.cluster.replies import ApiError
from exhume.errors import ExhumeError, UsageError
from tests.cluster.objects import make_node
from tests.cluster.servers import Cluster
from tests.host.proxies import http_proxy, socks_proxy

pytestmark = pytest.mark.ci


def who(access: Access) -> str:
    with Client(access) as client:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        name: str = client.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", body)["status"]["userInfo"]["username"]
        return name


def test_by_the_kubeconfig_that_was_named(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", f"/nowhere/at/all:{cluster.kubeconfig('agent')}:{cluster.kubeconfig()}")
    assert who(find()) == "agent"
    with connect("test") as client:
        assert client.described == "context test of the kubeconfig"


def test_by_a_certificate(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    document = yaml.safe_load(cluster.kubeconfig().read_text())
    document["users"] = [{"name": "admin", "user": {"client-certificate": "client.crt", "client-key": "client.key"}}]
    path = cluster.directory / "certificate.kubeconfig"
    path.write_text(json.dumps(document))
    monkeypatch.setenv("KUBECONFIG", os.fspath(path))
    assert who(find()) == "by-certificate"


def test_by_a_program_that_prints_a_token(cluster: Cluster, tmp_path: Path) -> None:
    told = {"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": {"token": "token-of-drainer"}}
    program = tmp_path / "plugin"
    program.write_text(f'#!/bin/sh\ntest -n "$KUBERNETES_EXEC_INFO" && test "$EXTRA" = 1 && echo \'{json.dumps(told)}\'\n')
    program.chmod(0o755)
    access = Access(cluster.address, cluster.authority, exec=Exec((os.fspath(program),), (("EXTRA", "1"),)))
    assert who(access) == "drainer"
    with pytest.raises(ExhumeError, match=r"brought no credentials \(exit code 1\)"):
        who(replace(access, exec=Exec((os.fspath(program),))))
    with pytest.raises(ExhumeError, match="is not installed: get it from your cloud"):
        who(replace(access, exec=Exec(("no-such-plugin-anywhere",), hint="get it from your cloud")))


def test_by_the_account_of_a_pod_whose_token_is_replaced(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(cluster.authority)
    (tmp_path / "token").write_text("token-of-agent\n")
    host, port = cluster.address.removeprefix("https://").split(":")
    access = in_cluster({"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}, os.fspath(tmp_path))
    assert who(access) == "agent"
    (tmp_path / "token").write_text("token-of-nobody\n")
    assert who(access) == "nobody"


def test_a_pod_without_an_account_is_told_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ExhumeError, match="automountServiceAccountToken"):
        in_cluster({"KUBERNETES_SERVICE_HOST": "127.0.0.1"}, os.fspath(tmp_path))


def test_a_token_that_is_not_known(cluster: Cluster) -> None:
    with pytest.raises(ApiError, match="does not know these credentials"):
        who(Access(cluster.address, cluster.authority, token="wrong"))


def test_a_server_whose_certificate_is_not_trusted(cluster: Cluster) -> None:
    with pytest.raises(ExhumeError, match="its certificate is not trusted"):
        who(Access(cluster.address, token="token-of-admin"))
    assert who(Access(cluster.address, token="token-of-admin", insecure=True)) == "admin"


def test_a_server_that_is_not_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"https://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ExhumeError, match=f"{address} cannot be reached: Connection refused"):
            who(Access(address))


def test_a_connection_that_broke_while_it_was_idle_is_opened_anew(cluster: Cluster) -> None:
    with cluster.client() as client:
        client.get("/version")
        client._http._socket._raw.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]
        assert client.get("/version")["major"] == "1"


def test_a_list_is_read_by_pages(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.cluster.client.PAGE", 2)
    with cluster.client() as client:
        made = {make_node(client) for _ in range(5)}
        assert made <= {one["metadata"]["name"] for one in client.list("/api/v1/nodes")}


def test_an_object_that_is_not_there(cluster: Cluster) -> None:
    with cluster.client() as client, pytest.raises(ApiError, match='could not get nodes none: nodes "none" not found') as error:
        client.get("/api/v1/nodes/none")
    assert error.value.status == 404


def test_a_context_that_is_not_there(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", os.fspath(cluster.kubeconfig()))
    with pytest.raises(UsageError, match="has no context other; it has test"):
        connect("other")


def test_through_a_proxy_with_the_certificate_of_another_name(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is one that only the proxy can resolve."""
    port = int(cluster.address.rpartition(":")[2])
    access = Access(f"https://api.test:{port}", cluster.authority, server_name="127.0.0.1", token="token-of-admin")
    with http_proxy() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.address}")
        with Client(access) as client:
            assert client.get("/version")["major"] == client.get("/version")["major"] == "1"
        assert proxy.asked == [f"CONNECT api.test:{port}"]
    with socks_proxy(account=b"me:x") as socks, Client(replace(access, proxy=f"socks5://me:x@{socks.address}")) as client:
        assert client.get("/version")["major"] == "1"
        assert socks.asked == [f"api.test:{port}"]
