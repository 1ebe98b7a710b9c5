"""The forms a kubeconfig takes, one by one: what becomes of each, and the sentence for what is not supported."""

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from exhume.cluster import credentials
from exhume.cluster.client import Client
from exhume.cluster.identity import Exec
from exhume.cluster.kubeconfig import Access, access, find, from_files, in_cluster
from exhume.errors import ExhumeError, UsageError
from tests.cluster.servers import Cluster

SERVER = "https://api.test:6443"
PEM = base64.b64encode(b"-----BEGIN-----").decode()


def config(cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, **context: str) -> dict[str, Any]:
    return {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", **context}}],
        "clusters": [{"name": "k", "cluster": {"server": SERVER, **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
    }


@pytest.mark.parametrize(
    ("cluster", "user", "expected"),
    [
        ({}, {}, {}),
        ({"certificate-authority-data": PEM}, {}, {"authority": b"-----BEGIN-----"}),
        ({"insecure-skip-tls-verify": True}, {}, {"insecure": True}),
        ({"insecure-skip-tls-verify": "true"}, {}, {"insecure": False}),
        ({"tls-server-name": "other.test"}, {}, {"server_name": "other.test"}),
        ({"proxy-url": "socks5://p:1"}, {}, {"proxy": "socks5://p:1"}),
        ({}, {"token": "t"}, {"token": "t"}),
        ({}, {"tokenFile": "/run/token", "token": "t"}, {"token_file": "/run/token", "token": "t"}),
        ({}, {"client-certificate-data": PEM, "client-key-data": PEM}, {"key": b"-----BEGIN-----"}),
        ({}, {"as": "me"}, {"impersonated": (("Impersonate-User", "me"),)}),
        (
            {},
            {"as": "me", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"Example.test/X Y": ["v"]}},
            {
                "impersonated": (
                    ("Impersonate-User", "me"),
                    ("Impersonate-Uid", "7"),
                    ("Impersonate-Group", "a"),
                    ("Impersonate-Group", "b"),
                    ("Impersonate-Extra-example.test%2Fx%20y", "v"),
                )
            },
        ),
        (
            {},
            {"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "get-token", "args": ["-x"]}},
            {"exec": Exec(("get-token", "-x"), version="client.authentication.k8s.io/v1beta1")},
        ),
        ({}, {"exec": {"command": "x", "interactiveMode": "IfAvailable"}}, {"exec": Exec(("x",))}),
        (
            {"extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}]},
            {"exec": {"command": "x", "provideClusterInfo": True, "env": [{"name": "A", "value": "1"}]}},
            {"exec": Exec(("x",), (("A", "1"),), cluster=json.dumps({"server": SERVER, "config": {"audience": "a"}}))},
        ),
    ],
)
def test_what_is_understood(cluster: dict[str, Any], user: dict[str, Any], expected: dict[str, Any]) -> None:
    found = access(config(cluster, user))
    assert {name: getattr(found, name) for name in expected} == expected
    assert found.server == SERVER


def test_the_namespace_of_a_context_changes_nothing() -> None:
    """What we speak of is in no namespace, or in one that is named."""
    assert access(config(namespace="team")) == access(config())


@pytest.mark.parametrize(
    ("cluster", "user", "said"),
    [
        ({"server": ""}, {}, "cluster k of the kubeconfig has no server that begins with https://"),
        ({"server": "https://"}, {}, "has no server"),
        ({"server": "https://x:port"}, {}, "has no server"),
        ({"server": "ssh://x"}, {}, "has no server"),
        ({"certificate-authority-data": "!"}, {}, "certificate-authority-data in the kubeconfig is not base64"),
        ({"certificate-authority": "/nowhere/ca"}, {}, "certificate-authority of the kubeconfig, /nowhere/ca, cannot be read"),
        ({"certificate-authority-data": PEM, "insecure-skip-tls-verify": True}, {}, "one or the other"),
        ({}, {"client-certificate-data": PEM}, "user u of the kubeconfig needs both client-certificate and client-key"),
        ({}, {"client-key-data": PEM}, "needs both"),
        ({}, {"auth-provider": {"name": "gcp"}}, "auth-provider in the kubeconfig is not supported by exhume"),
        ({}, {"username": "me", "password": "x"}, "username in the kubeconfig is not supported by exhume"),
        ({}, {"as-groups": ["a"]}, "need as: the user to act as"),
        ({}, {"as": "me", "as-groups": "a"}, "must be names"),
        ({}, {"as": "me", "as-user-extra": ["a"]}, "must be names"),
        ({}, {"as": "me\r\nX-Evil: 1"}, "must be names"),
        ({}, {"as": ["me"]}, "must be names"),
        ({}, {"exec": {}}, "exec of the kubeconfig has no command"),
        (
            {},
            {"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1alpha1"}},
            "is of .*/v1alpha1; exhume knows",
        ),
        ({}, {"exec": {"command": "x", "interactiveMode": "Always"}}, "asks a person, and exhume has none"),
    ],
)
def test_what_is_not_is_a_sentence(cluster: dict[str, Any], user: dict[str, Any], said: str) -> None:
    with pytest.raises(ExhumeError, match=said):
        access(config(cluster, user))


def test_of_several_files_the_first_that_has_a_name_wins(tmp_path: Path) -> None:
    first, second = tmp_path / "a" / "first", tmp_path / "b" / "second"
    for path in (first, second):
        path.parent.mkdir()
        (path.parent / "ca").write_bytes(path.name.encode())
    one, two = config({"certificate-authority": "ca"}), config({"certificate-authority": "ca"}, {"tokenFile": "token"})
    del one["users"], one["current-context"]
    two["clusters"].append({"name": "other", "cluster": {"server": "https://other.test"}})
    two["contexts"].append({"name": "only-here", "context": {"cluster": "other", "user": "u"}})
    first.write_text(yaml.safe_dump(one))
    second.write_text(yaml.safe_dump(two))
    env = {"KUBECONFIG": f"{tmp_path}/none:{first}::/dev/null:{second}"}
    found = find(environment=env)
    assert found.authority == b"first"
    assert found.token_file == f"{second.parent}/token"
    assert find("only-here", env).server == "https://other.test"


def test_files_that_hold_nothing_or_nonsense(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no current-context"):
        from_files(["/dev/null"])
    with pytest.raises(ExhumeError, match=r"no kubeconfig at .*name one by KUBECONFIG"):
        from_files([f"{tmp_path}/none"])
    (tmp_path / "list").write_text("- 1")
    with pytest.raises(UsageError, match="must be a YAML mapping"):
        from_files([f"{tmp_path}/list"])
    with pytest.raises(ExhumeError, match="cannot be read: Is a directory"):
        from_files([os.fspath(tmp_path)])


@pytest.mark.parametrize(
    ("env", "server"),
    [
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}, "https://10.0.0.1:6443"),
        ({"KUBERNETES_SERVICE_HOST": "fd00::1"}, "https://[fd00::1]:443"),
    ],
)
def test_the_account_of_a_pod(env: dict[str, str], server: str, tmp_path: Path) -> None:
    for name in ("ca.crt", "token"):
        (tmp_path / name).write_text("x")
    assert in_cluster(env, os.fspath(tmp_path)).server == server
    for wrong in ({**env, "KUBERNETES_SERVICE_PORT": "tcp://10.0.0.1:443"}, {"KUBERNETES_SERVICE_HOST": "a b"}):
        with pytest.raises(ExhumeError, match="are no address"):
            in_cluster(wrong, os.fspath(tmp_path))


def test_a_token_file_wins_and_its_last_token_is_the_one_of_the_file(tmp_path: Path) -> None:
    token = tmp_path / "token"
    client = Client(Access(SERVER, token="fixed", token_file=os.fspath(token)))
    assert client._authorization() == {"Authorization": "Bearer fixed"}
    for written in ("first", "second"):
        token.write_text(f"{written}\n")
        assert client._authorization() == {"Authorization": f"Bearer {written}"}
    token.write_text("evil\nX: 1")
    with pytest.raises(ExhumeError, match="holds no valid token"):
        client._authorization()
    with pytest.raises(ExhumeError, match="the token in /nowhere cannot be read"):
        Client(Access(SERVER, token_file="/nowhere"))._authorization()


def test_a_plugin_is_told_of_which_cluster_it_is_asked(tmp_path: Path) -> None:
    program = tmp_path / "plugin"
    program.write_text("""#!/bin/sh
told=$(echo "$KUBERNETES_EXEC_INFO" | base64 -w0)
echo '{"kind": "ExecCredential", "status": {"token": "'$told'"}}'
""")
    program.chmod(0o755)
    told = config(
        {"server": SERVER, "certificate-authority-data": PEM}, {"exec": {"command": f"{program}", "provideClusterInfo": True}}
    )
    plugin = access(told).exec
    assert plugin is not None
    info = json.loads(base64.b64decode(credentials.ask(plugin).token))
    assert info["spec"] == {"interactive": False, "cluster": {"server": SERVER, "certificate-authority-data": PEM}}


def whoami(access: Access) -> dict[str, Any]:
    with Client(access) as client:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        found: dict[str, Any] = client.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", body)["status"]["userInfo"]
        return found


def written(cluster: Cluster, tmp_path: Path, user: dict[str, Any], **more: Any) -> Access:
    place = {"server": cluster.address, "certificate-authority-data": base64.b64encode(cluster.authority).decode(), **more}
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config(place, user)))
    return find(environment={"KUBECONFIG": os.fspath(path)})


@pytest.mark.ci
def test_a_real_api_server_knows_us_by_a_certificate_as_data_and_another_name(cluster: Cluster, tmp_path: Path) -> None:
    data = {
        name: base64.b64encode((cluster.directory / f"client.{end}").read_bytes()).decode()
        for name, end in (("client-certificate-data", "crt"), ("client-key-data", "key"))
    }
    address = cluster.address.replace("127.0.0.1", "localhost")
    assert whoami(written(cluster, tmp_path, data))["username"] == "by-certificate"
    named = {"server": address, "tls-server-name": "127.0.0.1"}
    assert whoami(written(cluster, tmp_path, data, **named))["username"] == "by-certificate"
    with pytest.raises(ExhumeError, match="its certificate is not trusted"):
        whoami(written(cluster, tmp_path, data, **{"tls-server-name": "elsewhere.test"}))


@pytest.mark.ci
def test_a_real_api_server_takes_us_for_whom_we_act_as(cluster: Cluster, tmp_path: Path) -> None:
    user = {"token": "token-of-admin", "as": "zoe", "as-groups": ["a", "b"], "as-user-extra": {"example.test/why": ["drain"]}}
    found = whoami(written(cluster, tmp_path, user))
    assert found["username"] == "zoe"
    assert {"a", "b"} <= set(found["groups"])
    assert found["extra"]["example.test/why"] == ["drain"]
    with pytest.raises(ExhumeError, match="may not impersonate users"):
        whoami(written(cluster, tmp_path, {"token": "token-of-nobody", "as": "zoe"}))


@pytest.mark.ci
def test_a_token_that_a_plugin_brought_and_that_is_good_no_more_is_asked_for_anew(cluster: Cluster, tmp_path: Path) -> None:
    """As after a rotation: the first token is refused, the second is taken, and nobody notices."""
    program, count = tmp_path / "plugin", tmp_path / "count"
    program.write_text(f"""#!/bin/sh
echo x >> {count}
test $(wc -l < {count}) = 1 && token=old || token=token-of-agent
echo '{{"kind": "ExecCredential", "status": {{"token": "'$token'"}}}}'
""")
    program.chmod(0o755)
    assert whoami(written(cluster, tmp_path, {"exec": {"command": "./plugin"}}))["username"] == "agent"
    assert count.read_text() == "x\nx\n"
