"""Which proxy a server is reached through, and the way through it.

As client-go has it: proxy-url of the kubeconfig, always; else HTTPS_PROXY (HTTP_PROXY for a server of http://), unless the
server is this machine or NO_PROXY names it (golang.org/x/net/http/httpproxy). Only a proxy that is itself reached by TLS is not
supported: ssl cannot put one TLS connection into another's socket.
"""

import base64
import http.client
import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote, urlsplit

from exhume.errors import UsageError
from exhume.text import printable

Kind = Literal["http", "socks5"]
_PORTS: dict[Kind, int] = {"http": 80, "socks5": 1080}
# RFC 1928, section 6.
_SOCKS_REPLIES = (
    "",
    "general failure",
    "not allowed by its rules",
    "network unreachable",
    "host unreachable",
    "connection refused",
    "time to live expired",
)


@dataclass(frozen=True, slots=True)
class Proxy:
    kind: Kind
    host: str
    port: int
    user: str = ""
    password: str = ""

    def __str__(self) -> str:
        """Without the password."""
        return printable(f"{self.kind}://{joined(self.host, self.port)}")

    @property
    def headers(self) -> dict[str, str]:
        if not self.user and not self.password:
            return {}
        told = base64.b64encode(f"{self.user}:{self.password}".encode("utf-8", "surrogateescape")).decode()
        return {"Proxy-Authorization": f"Basic {told}"}


def chosen(server: str, named: str, env: Mapping[str, str]) -> Proxy | None:
    """`named` is the kubeconfig's, which NO_PROXY does not touch (http.ProxyURL)."""
    if named:
        return parse(named, "proxy-url of the kubeconfig")
    address = urlsplit(server)
    name = "HTTPS_PROXY" if address.scheme == "https" else "HTTP_PROXY"
    told = env.get(name) or env.get(name.lower()) or ""
    port = address.port or (443 if address.scheme == "https" else 80)
    if not told or passed_over(address.hostname or "", port, env.get("NO_PROXY") or env.get("no_proxy") or ""):
        return None
    return parse(told, name)


def parse(told: str, where: str) -> Proxy:
    """A URL, or HOST:PORT, which means http."""
    url = told if "://" in told else f"http://{told}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
    except ValueError:
        host, port, user, password = "", None, "", ""
    if not host or not host.isprintable() or " " in host:
        raise UsageError(f"{where} is no address of a proxy")
    kind: Kind | None = "http" if parts.scheme == "http" else "socks5" if parts.scheme in ("socks5", "socks5h") else None
    if kind is None:
        raise UsageError(
            f"{where} begins with {printable(parts.scheme, 20)}://: exhume goes through http:// and socks5:// proxies"
        )
    return Proxy(kind, host, _PORTS[kind] if port is None else port, user, password)


def passed_over(host: str, port: int, no_proxy: str) -> bool:
    """This machine never, nor what NO_PROXY names: addresses, networks, domains, with or without :PORT (config.useProxy)."""
    host = host.lower().rstrip(".")
    ip = _ip(host)
    if host == "localhost" or (ip is not None and ip.is_loopback):
        return True
    words = [word.strip().lower() for word in no_proxy.split(",") if word.strip()]
    return "*" in words or any(_names(word, host, port, ip) for word in words)


def _names(word: str, host: str, port: int, ip: "ipaddress.IPv4Address | ipaddress.IPv6Address | None") -> bool:
    if "/" in word:
        try:
            return ip is not None and ip in ipaddress.ip_network(word, strict=False)
        except ValueError:
            return False
    name, colon, digits = word.rpartition(":")
    if colon and digits.isdecimal() and (name.startswith("[") or ":" not in name):
        if digits != str(port):
            return False
    else:
        name = word
    name = name.strip("[]")
    if (other := _ip(name)) is not None:
        return ip == other
    name = name.removeprefix("*")
    if name.startswith("."):
        return len(name) > 1 and host.endswith(name)
    return bool(name) and (host == name or host.endswith(f".{name}"))


def through(proxy: Proxy, target: tuple[str, int] | None, patience_s: float) -> socket.socket:
    """A connection to the target by way of the proxy, or to the proxy alone. OSError says what the proxy did."""
    try:
        opened = socket.create_connection((proxy.host, proxy.port), patience_s)
    except (OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        raise OSError(f"the proxy {proxy} cannot be reached: {reason}") from None
    try:
        if target is not None:
            (_connect if proxy.kind == "http" else _socks)(opened, proxy, *target)
    except BaseException:
        opened.close()
        raise
    return opened


def _connect(opened: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """RFC 9110, section 9.3.6."""
    where = joined(host, port)
    lines = [f"CONNECT {where} HTTP/1.1", f"Host: {where}", *(f"{name}: {value}" for name, value in proxy.headers.items())]
    opened.sendall("\r\n".join((*lines, "", "")).encode("ascii", "replace"))
    reply = http.client.HTTPResponse(opened, method="CONNECT")
    try:
        reply.begin()
        if not 200 <= reply.status < 300:
            raise OSError(f"the proxy {proxy} answers {reply.status} {reply.reason}".rstrip())
    finally:
        reply.close()


def _socks(opened: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """RFC 1928, and RFC 1929 for a name and a password. Names are left to the proxy to look up."""
    user, password = proxy.user.encode()[:255], proxy.password.encode()[:255]
    opened.sendall(b"\x05\x02\x00\x02" if user else b"\x05\x01\x00")
    version, way = _exactly(opened, 2)
    if version != 5 or way not in ((0, 2) if user else (0,)):
        raise OSError(f"the proxy {proxy} takes none of the ways to log in that were offered")
    if way == 2:
        opened.sendall(bytes((1, len(user))) + user + bytes((len(password),)) + password)
        if _exactly(opened, 2)[1] != 0:
            raise OSError(f"the proxy {proxy} does not take the name and the password")
    ip = _ip(host)
    name = host.encode("idna") if ip is None else ip.packed
    kind = bytes((3, len(name))) if ip is None else bytes((1 if ip.version == 4 else 4,))
    opened.sendall(b"\x05\x01\x00" + kind + name + port.to_bytes(2, "big"))
    _, told, _, kind_of_address = _exactly(opened, 4)
    if told:
        raise OSError(f"the proxy {proxy} says: {_SOCKS_REPLIES[told] if told < len(_SOCKS_REPLIES) else f'error {told}'}")
    length = {1: 4, 4: 16}.get(kind_of_address) or _exactly(opened, 1)[0]
    _exactly(opened, length + 2)


def _exactly(opened: socket.socket, count: int) -> bytes:
    held = b""
    while len(held) < count:
        more = opened.recv(count - len(held))
        if not more:
            raise OSError("the proxy ended the connection")
        held += more
    return held


def _ip(host: str) -> "ipaddress.IPv4Address | ipaddress.IPv6Address | None":
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
