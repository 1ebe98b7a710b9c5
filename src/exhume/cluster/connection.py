"""One connection to the API server: through a proxy where there is one, then TLS with the certificates of the kubeconfig."""

import http.client
import os
import socket
import ssl
from collections.abc import Iterable
from urllib.parse import urlsplit

from exhume import __version__
from exhume.cluster.credentials import Credential
from exhume.cluster.kubeconfig import Access
from exhume.cluster.proxy import Proxy, joined, through
from exhume.errors import ExhumeError


class Connection(http.client.HTTPConnection):
    def __init__(self, access: Access, credential: Credential | None, proxy: Proxy | None, patience_s: float) -> None:
        address = urlsplit(access.server)
        secure = address.scheme == "https"
        super().__init__(address.hostname or "", address.port or (443 if secure else 80), timeout=patience_s)
        self._patience_s, self._proxy = patience_s, proxy
        self._tls = context(access, credential) if secure else None
        # The server's certificate may be for another name than its address.
        self._name = access.server_name or self.host
        self.default_port = 443 if secure else 80

    def send_request(self, method: str, target: str, headers: Iterable[tuple[str, str]], data: bytes | None) -> None:
        """Header by header: Impersonate-Group may come more than once."""
        # A proxy that is asked for a page, and not for a connection, wants the whole address (RFC 9112, section 3.2.2).
        whole = f"http://{joined(self.host, self.port)}{target}" if self._by_page else target
        own = self._proxy.headers if self._proxy is not None and self._by_page else {}
        self.putrequest(method, whole)
        for name, value in (("User-Agent", f"exhume/{__version__}"), *own.items(), *headers):
            self.putheader(name, value)
        self.endheaders(data)

    def connect(self) -> None:
        if self._proxy is None:
            self.sock = socket.create_connection((self.host, self.port), self._patience_s)
        else:
            target = None if self._by_page else (self.host, self.port)
            self.sock = through(self._proxy, target, self._patience_s)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is not None:
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name)

    @property
    def _by_page(self) -> bool:
        return self._tls is None and self._proxy is not None and self._proxy.kind == "http"


def context(access: Access, credential: Credential | None) -> ssl.SSLContext:
    described = access.described or access.server
    try:
        made = ssl.create_default_context(cadata=access.authority.decode("ascii") if access.authority else None)
    except (ssl.SSLError, ValueError):
        raise ExhumeError(f"the certificate authority of {described} is no PEM certificate") from None
    if access.insecure:
        made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    certificate = (credential and credential.certificate) or access.certificate
    key = (credential and credential.key) or access.key
    if certificate and key:
        # ssl takes a certificate from a file only; this one is in memory, so that the key is never on a disk.
        with open(os.memfd_create("certificate"), "wb") as file:
            file.write(certificate + b"\n" + key)
            file.flush()
            try:
                # Without a password to give, a key that has one is refused and not asked for at the terminal.
                made.load_cert_chain(f"/proc/self/fd/{file.fileno()}", password=lambda: "")
            except ssl.SSLError:
                raise ExhumeError(f"the client certificate of {described} and its key cannot be used together") from None
    return made
