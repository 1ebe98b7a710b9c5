"""HTTP addresses: which URLs are valid, which proxy leads to a server, and which servers NO_PROXY exempts.

HTTPS_PROXY, HTTP_PROXY and NO_PROXY are read as golang.org/x/net/http/httpproxy reads them, which kubectl and Prometheus use:
upper case before lower case, loopback never through a proxy, ALL_PROXY ignored. This module is light to import: it holds no
sockets and no TLS.
"""

import base64
import ipaddress
import re
from collections.abc import Mapping
from typing import Literal
from urllib.parse import SplitResult, unquote, urlsplit

from exhume.errors import UsageError
from exhume.record import record
from exhume.text import printable

ProxyKind = Literal["http", "https", "socks5"]
_PROXY_KINDS: dict[str, ProxyKind] = {"http": "http", "https": "https", "socks5": "socks5", "socks5h": "socks5"}
_PROXY_PORTS: dict[ProxyKind, int] = {"http": 80, "https": 443, "socks5": 1080}


def split_url(url: str) -> SplitResult:
    """The parts of an http:// or https:// URL that names a host. ValueError for anything else."""
    parts = urlsplit(url)
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.port == 0
        or not (url.isascii() and url.isprintable())
        or " " in url
    ):
        raise ValueError("not an HTTP URL")
    return parts


def port_of(url: SplitResult) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def join_host(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def loopback(host: str) -> bool:
    """Whether a message to this host stays on this machine."""
    ip = _ip(host.partition("%")[0])
    return host.lower().rstrip(".") == "localhost" if ip is None else ip.is_loopback


def basic(user: str, password: str) -> str:
    """The value of Authorization or Proxy-Authorization (RFC 7617)."""
    pair = f"{user}:{password}".encode("utf-8", "surrogateescape")
    return f"Basic {base64.b64encode(pair).decode('ascii')}"


@record(frozen=True, slots=True)
class Proxy:
    kind: ProxyKind
    host: str
    port: int
    user: str = ""
    password: str = ""
    source: str = ""
    """The setting that names it, for messages."""

    def __str__(self) -> str:
        """Without the password."""
        return printable(f"{self.kind}://{join_host(self.host, self.port)}")

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        return (("Proxy-Authorization", basic(self.user, self.password)),) if self.user or self.password else ()


def proxy_for(url: SplitResult, named: str, env: Mapping[str, str]) -> Proxy | None:
    """`named` is proxy-url of a kubeconfig, which NO_PROXY does not affect (client-go: http.ProxyURL)."""
    if named:
        return parse_proxy(named, "proxy-url of the kubeconfig")
    variable = "HTTPS_PROXY" if url.scheme == "https" else "HTTP_PROXY"
    value = env.get(variable) or env.get(variable.lower()) or ""
    if not value or exempt(url.hostname or "", port_of(url), env.get("NO_PROXY") or env.get("no_proxy") or ""):
        return None
    return parse_proxy(value, variable)


def parse_proxy(value: str, source: str) -> Proxy:
    """A URL, or HOST:PORT, which means http://."""
    try:
        parts = urlsplit(value if "://" in value else f"http://{value}")
        host, port = parts.hostname or "", parts.port
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
    except ValueError:
        host = ""
    if not host or not (host.isascii() and host.isprintable()) or " " in host or port == 0:
        raise UsageError(f"{source} is not the address of a proxy: write http://HOST:PORT")
    kind = _PROXY_KINDS.get(parts.scheme)
    if kind is None:
        scheme = printable(parts.scheme, 20)
        raise UsageError(f"{source} begins with {scheme}://; exhume supports http://, https:// and socks5:// proxies")
    return Proxy(kind, host, port or _PROXY_PORTS[kind], user, password, source)


def exempt(host: str, port: int, no_proxy: str) -> bool:
    """Loopback, and what NO_PROXY lists: addresses, networks, domains, each with or without :PORT, or * for everything."""
    if loopback(host):
        return True
    host = host.lower().rstrip(".")
    ip = _ip(host)
    entries = [entry for entry in re.split(r"[,\s]+", no_proxy.lower()) if entry]
    return "*" in entries or any(_matches(entry, host, port, ip) for entry in entries)


def _matches(entry: str, host: str, port: int, ip: "ipaddress.IPv4Address | ipaddress.IPv6Address | None") -> bool:
    if "/" in entry:
        try:
            return ip is not None and ip in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, colon, digits = entry.rpartition(":")
    if colon and digits.isdecimal() and (name.startswith("[") or ":" not in name):
        if digits != str(port):
            return False
    else:
        name = entry
    name = name.strip("[]")
    if (other := _ip(name)) is not None:
        return ip == other
    name = name.removeprefix("*")
    if name.startswith("."):
        return len(name) > 1 and host.endswith(name)
    return bool(name) and (host == name or host.endswith(f".{name}"))


def _ip(host: str) -> "ipaddress.IPv4Address | ipaddress.IPv6Address | None":
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
