"""URLs, and which proxy leads to a server, as golang.org/x/net/http/httpproxy decides it."""

import ipaddress
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import UsageError
from exhume.host.http.address import Proxy, exempt, join_host, loopback, parse_proxy, port_of, proxy_for, split_url


@pytest.mark.parametrize(
    ("host", "no_proxy", "expected"),
    [
        ("localhost", "", True),
        ("127.8.8.8", "", True),
        ("::1", "", True),
        ("10.1.2.3", "", False),
        ("10.1.2.3", "*", True),
        ("10.1.2.3", " 10.1.2.3 ", True),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("10.1.2.3", "11.0.0.0/8,10.1.2.3:443", True),
        ("10.1.2.3", "11.0.0.0/8 10.1.2.3", True),
        ("localhost.", "", True),
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
def test_what_no_proxy_names_is_reached_directly(host: str, no_proxy: str, expected: bool) -> None:
    assert exempt(host, 443, no_proxy) is expected


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
        ("https://api.test", "", {"HTTPS_PROXY": "https://p"}, "https://p:443"),
        ("https://api.test", "", {"ALL_PROXY": "http://p:1"}, None),
        ("https://api.test", "", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "test"}, None),
        ("https://api.test:6443", "", {"HTTPS_PROXY": "http://p:1", "no_proxy": "test:443"}, "http://p:1"),
        ("https://api.test", "http://k:1", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, "http://k:1"),
        ("https://127.0.0.1", "http://k:1", {}, "http://k:1"),
    ],
)
def test_the_kubeconfigs_proxy_then_the_environments(
    server: str, named: str, env: dict[str, str], expected: str | None
) -> None:
    found = proxy_for(urlsplit(server), named, env)
    assert (None if found is None else str(found)) == expected


@pytest.mark.parametrize("told", ["ftp://p", "socks4://p", "http://p:0", "http://", "http://[", "http://p:port", "http://a b"])
def test_a_proxy_that_cannot_be_used_is_a_sentence(told: str) -> None:
    with pytest.raises(UsageError, match="proxy-url of the kubeconfig"):
        proxy_for(urlsplit("https://api.test"), told, {})


def test_the_password_is_sent_and_not_shown() -> None:
    found = parse_proxy("http://me:s%40cret@p:8080", "x")
    assert found == Proxy("http", "p", 8080, "me", "s@cret", "x")
    assert str(found) == "http://p:8080"
    assert found.headers == (("Proxy-Authorization", "Basic bWU6c0BjcmV0"),)


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=60))
def test_proxies_of_any_shape(told: str, host: str, no_proxy: str) -> None:
    with suppress(UsageError):
        assert 0 <= parse_proxy(told, "x").port <= 65535
    assert exempt(host, 443, no_proxy) in (True, False)
    assert exempt(host, 443, f"{no_proxy},*") is True


@given(st.ip_addresses(), st.integers(0, 32), st.integers(1, 65535))
def test_an_address_is_exempt_by_itself_and_by_every_network_around_it(
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address, prefix: int, port: int
) -> None:
    network = ipaddress.ip_network(f"{ip}/{prefix}", strict=False)
    assert exempt(str(ip), port, f"other.test,{network}")
    assert exempt(str(ip), port, str(ip))
    assert exempt(str(ip), port, join_host(str(ip), port))
    assert exempt(str(ip), port, join_host(str(ip), port % 65535 + 1)) == loopback(str(ip))


@given(st.lists(st.from_regex(r"\A[a-z][a-z0-9]{0,8}\Z"), min_size=1, max_size=3), st.from_regex(r"\A[a-z][a-z0-9]{0,8}\Z"))
def test_a_domain_covers_its_subdomains_and_no_name_that_only_ends_like_it(labels: list[str], more: str) -> None:
    domain = ".".join([*labels, "test"])
    assert exempt(f"{more}.{domain}", 443, domain)
    assert exempt(f"{more}.{domain}", 443, f"*.{domain}")
    assert exempt(domain, 443, domain.upper())
    assert not exempt(f"{more}{domain}", 443, domain)
    assert not exempt(domain, 443, f".{domain}")


@given(st.text(max_size=30) | st.from_regex(r"\Ahttps?://[a-z0-9@:/.\[\] -]{0,20}\Z"))
def test_a_url_is_valid_or_refused(url: str) -> None:
    try:
        found = split_url(url)
    except ValueError:
        return
    assert found.hostname
    assert 0 < port_of(found) <= 65535
    assert url.isascii()
    assert url.isprintable()
