"""How to reach an API server: a kubeconfig file, as kubectl reads it, or the service account that a pod is given.

Only what is needed to speak to it is read; what is not supported (auth-provider, a name and a password) is said, not ignored.
"""

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exhume import budget
from exhume.cluster.document import list_in, text_in, within
from exhume.cluster.identity import Exec, impersonated, plugin
from exhume.errors import ExhumeError, UsageError
from exhume.host.http.address import split_url
from exhume.text import printable

# client-go, rest.InClusterConfig.
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
LARGEST = 4 << 20


@dataclass(frozen=True, slots=True)
class Access:
    server: str
    authority: bytes = b""
    """Certificates (PEM) that the server's is checked with; empty: those of the system."""
    insecure: bool = False
    server_name: str = ""
    certificate: bytes = b""
    key: bytes = b""
    token: str = ""
    token_file: str = ""
    """Read anew for each request: the kubelet replaces what is in it."""
    exec: Exec | None = None
    described: str = ""
    """Where this comes from, for people."""
    proxy: str = ""
    """proxy-url; without it the environment's is asked."""
    impersonated: tuple[tuple[str, str], ...] = ()
    """Headers that say as whom to act."""


def find(context: str = "", environment: Mapping[str, str] | None = None) -> Access:
    """A kubeconfig that was named (KUBECONFIG), else the pod's own account, else ~/.kube/config."""
    env = os.environ if environment is None else environment
    named = [part for part in env.get("KUBECONFIG", "").split(":") if part]
    if not named and not context and env.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(env)
    paths = named or [os.path.join(env.get("HOME", os.path.expanduser("~")), ".kube", "config")]
    return from_files(paths, context)


def in_cluster(env: Mapping[str, str], account: str = ACCOUNT) -> Access:
    host, port = env.get("KUBERNETES_SERVICE_HOST", ""), env.get("KUBERNETES_SERVICE_PORT", "443")
    try:
        authority = Path(account, "ca.crt").read_bytes()
        Path(account, "token").read_bytes()
    except OSError as error:
        raise ExhumeError(
            f"this pod has no service account to speak to the API server with: {error.filename}: {error.strerror}; "
            "set automountServiceAccountToken, or name a kubeconfig by KUBECONFIG"
        ) from None
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    try:
        split_url(server)
    except ValueError:
        raise ExhumeError(
            f"KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT, {printable(host)} and {printable(port)}, are no address"
        ) from None
    return Access(server, authority, token_file=f"{account}/token", described="the pod's service account")


def from_files(paths: Sequence[str], context: str = "") -> Access:
    """Of several files the first that has a name wins, as with kubectl; files that are not there are passed over."""
    merged: dict[str, Any] = {"clusters": [], "users": [], "contexts": []}
    found = False
    for path in paths:
        try:
            raw = budget.read(path, LARGEST)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ExhumeError(f"kubeconfig {printable(path)} cannot be read: {error.strerror}") from None
        found = True
        document = parse(raw, path)
        for kind in ("clusters", "users", "contexts"):
            merged[kind] += [{**one, "from": path} for one in list_in(document, kind)]
        merged.setdefault("current-context", text_in(document, "current-context") or None)
        if merged["current-context"] is None:
            del merged["current-context"]
    if not found:
        raise ExhumeError(f"no kubeconfig at {printable(paths[0])}, and this is no pod: name one by KUBECONFIG")
    return access(merged, context)


def parse(raw: bytes, path: str = "") -> dict[str, Any]:
    import yaml

    try:
        with budget.enforced():
            document = yaml.safe_load(raw) if len(raw) <= LARGEST else None
    except (yaml.YAMLError, ValueError, RecursionError, UnicodeDecodeError):
        document = None
    if document is None and len(raw) <= LARGEST and not raw.strip():
        return {}  # KUBECONFIG=/dev/null
    if not isinstance(document, dict):
        raise UsageError(f"kubeconfig {printable(path)} is not a kubeconfig: it must be a YAML mapping")
    return document


def access(document: Mapping[str, Any], context: str = "") -> Access:
    """One context of a merged document. UsageError says which part is missing or wrong."""
    name = context or text_in(document, "current-context")
    if not name:
        raise UsageError("the kubeconfig has no current-context: name one with --context")
    chosen = _named(document, "contexts", name)
    cluster_name, user_name = text_in(chosen, "context", "cluster"), text_in(chosen, "context", "user")
    cluster = _named(document, "clusters", cluster_name)
    user = _named(document, "users", user_name) if user_name else {}
    where, who = _part(cluster, "cluster"), _part(user, "user")
    server = text_in(where, "server").rstrip("/")
    try:
        split_url(server)
    except ValueError:
        raise UsageError(
            f"cluster {printable(cluster_name)} of the kubeconfig has no server that begins with https://"
        ) from None
    for other in ("auth-provider", "username"):
        if within(who, other):
            raise UsageError(f"{other} in the kubeconfig is not supported by exhume: a token, a certificate or exec is")
    home = os.path.dirname(text_in(cluster, "from")), os.path.dirname(text_in(user, "from"))
    token_file = text_in(who, "tokenFile")
    authority, insecure = _bytes(where, "certificate-authority", home[0]), within(where, "insecure-skip-tls-verify") is True
    if authority and insecure:  # client-go, transport.TLSConfigFor
        raise UsageError(
            f"cluster {printable(cluster_name)} of the kubeconfig has a certificate-authority and insecure-skip-tls-verify: "
            "one or the other"
        )
    certificate, key = _bytes(who, "client-certificate", home[1]), _bytes(who, "client-key", home[1])
    if bool(certificate) != bool(key):
        raise UsageError(
            f"user {printable(user_name)} of the kubeconfig needs both client-certificate and client-key, or neither"
        )
    return Access(
        server,
        authority,
        insecure,
        text_in(where, "tls-server-name"),
        certificate,
        key,
        text_in(who, "token"),
        os.path.join(home[1], token_file) if token_file else "",
        plugin(who, home[1], where, authority),
        f"context {printable(name)} of the kubeconfig",
        text_in(where, "proxy-url"),
        impersonated(who),
    )


def _named(document: Mapping[str, Any], kind: str, name: str) -> dict[str, Any]:
    for one in list_in(dict(document), kind):
        if one.get("name") == name:
            return one
    known = ", ".join(sorted(printable(text_in(one, "name"), 60) for one in list_in(dict(document), kind))[:10])
    raise UsageError(f"the kubeconfig has no {kind[:-1]} {printable(name)}; it has {known or 'none'}")


def _part(one: dict[str, Any], kind: str) -> dict[str, Any]:
    part = one.get(kind)
    return part if isinstance(part, dict) else {}


def _bytes(part: dict[str, Any], key: str, home: str) -> bytes:
    """KEY-data in base64, or a file named by KEY, relative to the kubeconfig that names it."""
    if data := text_in(part, f"{key}-data"):
        try:
            return base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            raise UsageError(f"{key}-data in the kubeconfig is not base64") from None
    if path := text_in(part, key):
        try:
            return Path(home, path).read_bytes()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a path"
            raise ExhumeError(f"{key} of the kubeconfig, {printable(path)}, cannot be read: {reason}") from None
    return b""
