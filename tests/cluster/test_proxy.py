"""Proxies: which one is chosen, as golang.org/x/net/http/httpproxy does, and the way through real ones on loopback."""

import socket
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.cluster.client import Client
from exhume.cluster.kubeconfig import Access
from exhume.cluster.proxy import Proxy, chosen, parse, passed_over, through
from exhume.errors import ExhumeError, UsageError
from tests.cluster.proxies import http_proxy, socks_proxy
from tests.cluster.servers import Cluster


@pytest.mark.parametrize(
    ("host", "no_proxy", "passed"),
    [
        ("localhost", "", True),
        ("127.8.8.8", "", True),
        ("::1", "", True),
        ("10.1.2.3", "", False),
        ("10.1.2.3", "*", True),
        ("10.1.2.3", " 10.1.2.3 ", True),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("10.1.2.3", "11.0.0.0/8,10.1.2.3:443", True),
        ("10.1.2.3", "10.1.2.3:6443", False),
        ("fd00::5", "fd00::/8", True),
        ("fd00::5", "[fd00::5]:443", True),
        ("fd00::5", "fd00::5", True),
        ("api.cluster.test", "cluster.test", True),
        ("cluster.test", "cluster.test", True),
        ("cluster.test", ".cluster.test", False),
        ("api.cluster.test", ".cluster.test", True),
        ("api.cluster.test", "*.cluster.test", True),
        ("API.Cluster.Test", "cluster.TEST:443", True),
        ("api.cluster.test", "cluster.test:6443", False),
        ("notcluster.test", "cluster.test", False),
        ("10.1.2.3", "not a/network,:443,.,,*x", False),
    ],
)
def test_what_no_proxy_names_is_reached_directly(host: str, no_proxy: str, passed: bool) -> None:
    assert passed_over(host, 443, no_proxy) is passed


@pytest.mark.parametrize(
    ("server", "named", "env", "expected"),
    [
        ("https://api.test", "", {}, None),
        ("https://api.test", "", {"HTTP_PROXY": "http://p:1"}, None),
        ("https://api.test", "", {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ("https://api.test", "", {"https_proxy": "p:1"}, "http://p:1"),
        ("https://api.test", "", {"HTTPS_PROXY": "http://upper:1", "https_proxy": "http://lower:1"}, "http://upper:1"),
        ("http://api.test", "", {"HTTP_PROXY": "http://p", "HTTPS_PROXY": "http://s"}, "http://p:80"),
        ("https://api.test", "", {"HTTPS_PROXY": "socks5h://p"}, "socks5://p:1080"),
        ("https://api.test", "", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "test"}, None),
        ("https://api.test:6443", "", {"HTTPS_PROXY": "http://p:1", "no_proxy": "test:443"}, "http://p:1"),
        ("https://api.test", "http://k:1", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, "http://k:1"),
        ("https://127.0.0.1", "http://k:1", {}, "http://k:1"),
    ],
)
def test_the_kubeconfigs_proxy_then_the_environments(
    server: str, named: str, env: dict[str, str], expected: str | None
) -> None:
    found = chosen(server, named, env)
    assert (None if found is None else str(found)) == expected


@pytest.mark.parametrize("told", ["https://p:1", "ftp://p", "http://", "http://[", "http://p:port", "http://a b"])
def test_a_proxy_that_cannot_be_used_is_a_sentence(told: str) -> None:
    with pytest.raises(UsageError, match="proxy-url of the kubeconfig"):
        chosen("https://api.test", told, {})


def test_the_password_is_sent_and_not_shown() -> None:
    found = parse("http://me:s%40cret@p:8080", "x")
    assert found == Proxy("http", "p", 8080, "me", "s@cret")
    assert str(found) == "http://p:8080"
    assert found.headers == {"Proxy-Authorization": "Basic bWU6c0BjcmV0"}


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=60))
def test_proxies_of_any_shape(told: str, host: str, no_proxy: str) -> None:
    with suppress(UsageError):
        assert 0 <= parse(told, "x").port <= 65535
    assert passed_over(host, 443, no_proxy) in (True, False)
    assert passed_over(host, 443, f"{no_proxy},*") is True


@given(st.binary(max_size=40), st.sampled_from(["http", "socks5"]))
def test_a_proxy_that_answers_anything(answer: bytes, kind: str) -> None:
    """A connection, or OSError or HTTPException as the client expects them; never something else."""
    import http.client

    from exhume.cluster import proxy as module

    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(5)
        theirs.sendall(answer)
        theirs.shutdown(socket.SHUT_WR)
        made = parse(f"{kind}://me:x@p", "x")
        with suppress(OSError, http.client.HTTPException):
            (module._connect if kind == "http" else module._socks)(ours, made, "api.test", 443)
            assert answer.startswith(b"\x05" if kind == "socks5" else b"HTTP/")


def test_a_page_of_a_server_without_tls_is_asked_for_by_its_whole_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with http_proxy(account=b"bWU6eA==") as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://me:x@{proxy.address}")
        with Client(Access("http://api.test:8001/base")) as client:
            assert client.get("/version") == {"by": "us"}
    assert proxy.asked == ["GET http://api.test:8001/base/version"]


def test_a_proxy_that_is_not_there_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        name = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ExhumeError, match=f"the proxy http://{name} cannot be reached: Connection refused"):
            Client(Access("https://api.test", proxy=f"http://{name}")).get("/version")


@pytest.mark.ci
def test_through_a_proxy_to_a_real_api_server(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address is one that only the proxy can reach, and the certificate is for another name."""
    port = int(cluster.address.rpartition(":")[2])
    access = Access(f"https://api.test:{port}", cluster.authority, server_name="127.0.0.1", token="token-of-admin")
    with http_proxy() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy.address}")
        with Client(access) as client:
            assert client.get("/version")["major"] == client.get("/version")["major"] == "1"
        assert proxy.asked == [f"CONNECT api.test:{port}"]
        monkeypatch.setenv("NO_PROXY", "test")
        with pytest.raises(ExhumeError, match="cannot be reached"):
            Client(access).get("/version")
        assert len(proxy.asked) == 1
    with socks_proxy(account=b"me:x") as socks, Client(replace(access, proxy=f"socks5://me:x@{socks.address}")) as client:
        assert client.get("/version")["major"] == "1"
        assert socks.asked == [f"api.test:{port}"]


@pytest.mark.parametrize(
    ("url", "refuses", "account", "said"),
    [
        ("http://{}", b"403 Forbidden", b"", "answers 403 Forbidden"),
        ("http://{}", b"", b"bWU6eA==", "answers 407 Proxy Authentication Required"),
        ("socks5://{}", b"\x02", b"", "says: not allowed by its rules"),
        ("socks5://{}", b"\x63", b"", "says: error 99"),
        ("socks5://{}", b"", b"me:x", "none of the ways to log in"),
        ("socks5://me:y@{}", b"", b"me:x", "does not take the name and the password"),
    ],
)
def test_a_proxy_that_refuses_is_named(url: str, refuses: bytes, account: bytes, said: str) -> None:
    with (http_proxy if url.startswith("http") else socks_proxy)(refuses, account) as proxy:
        with pytest.raises(OSError, match=said) as refused:
            through(parse(url.format(proxy.address), "x"), ("api.test", 443), 10)
        assert "me:" not in str(refused.value)
        with pytest.raises(ExhumeError, match=f"https://api.test cannot be reached: the proxy .*{said}"):
            Client(Access("https://api.test", proxy=url.format(proxy.address))).get("/version")
