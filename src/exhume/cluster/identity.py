"""Who we are to the API server, as the user of a kubeconfig says it: a program that brings credentials, and whom to act as."""

import base64
import json
import os
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from exhume.cluster.document import list_in, text_in
from exhume.errors import UsageError
from exhume.text import printable

_VERSION = "client.authentication.k8s.io/v1"
_VERSIONS = (_VERSION, "client.authentication.k8s.io/v1beta1")


@dataclass(frozen=True, slots=True)
class Exec:
    """A program that prints an ExecCredential (client.authentication.k8s.io)."""

    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    version: str = _VERSION
    hint: str = ""
    cluster: str = ""
    """The cluster as JSON, for a plugin that wants to know for which one it is asked (provideClusterInfo)."""


def impersonated(user: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """As the headers that the API server takes (user impersonation). To leave them out would be to act with other rights."""
    name, groups, extra = user.get("as"), user.get("as-groups") or [], user.get("as-user-extra") or {}
    told: list[tuple[str, object]] = [("Impersonate-User", name)] if name else []
    told += [("Impersonate-Uid", uid)] if (uid := user.get("as-uid")) else []
    told += [("Impersonate-Group", one) for one in groups] if isinstance(groups, list) else [("", groups)]
    for key, values in extra.items() if isinstance(extra, dict) else [("", [extra])]:
        # Keys are in small letters and escaped as in an address (client-go, transport.headerKeyEscape).
        header = f"Impersonate-Extra-{quote(str(key).lower(), safe='')}"
        told += [(header, value) for value in (values if isinstance(values, list) else [values])]
    made = tuple(
        (header, value) for header, value in told if isinstance(value, str) and value.isascii() and value.isprintable()
    )
    if len(made) < len(told) or any(not header for header, _ in made):
        raise UsageError("as, as-uid, as-groups and as-user-extra in the kubeconfig must be names, in plain letters")
    if made and not name:
        raise UsageError("as-uid, as-groups and as-user-extra in the kubeconfig need as: the user to act as")
    return made


def plugin(user: dict[str, Any], home: str, where: dict[str, Any], authority: bytes) -> Exec | None:
    told = user.get("exec")
    if not isinstance(told, dict):
        return None
    command = text_in(told, "command")
    if not command:
        raise UsageError("exec of the kubeconfig has no command")
    # With a slash in it, it is relative to the kubeconfig; else it is looked up in PATH (client-go, clientcmd).
    if "/" in command:
        command = os.path.join(home, command)
    arguments = told.get("args")
    words = tuple(word for word in arguments if isinstance(word, str)) if isinstance(arguments, list) else ()
    variables = tuple((text_in(one, "name"), text_in(one, "value")) for one in list_in(told, "env") if text_in(one, "name"))
    version = text_in(told, "apiVersion") or _VERSION
    if version not in _VERSIONS:
        raise UsageError(f"exec of the kubeconfig is of {printable(version)}; exhume knows {' and '.join(_VERSIONS)}")
    if told.get("interactiveMode") == "Always":
        raise UsageError(
            f"{printable(command)}, which the kubeconfig wants for credentials, asks a person, and exhume has none"
        )
    cluster = _cluster_info(where, authority) if told.get("provideClusterInfo") is True else ""
    return Exec((command, *words), variables, version, text_in(told, "installHint"), cluster)


def _cluster_info(where: dict[str, Any], authority: bytes) -> str:
    """client.authentication.k8s.io, Cluster: the authority as data, whatever the kubeconfig has; config from its extensions."""
    names = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url")
    told: dict[str, Any] = {name: where[name] for name in names if isinstance(where.get(name), str | bool)}
    if authority:
        told["certificate-authority-data"] = base64.b64encode(authority).decode()
    for one in list_in(where, "extensions"):
        if one.get("name") == "client.authentication.k8s.io/exec":
            told["config"] = one.get("extension")
    return json.dumps(told, default=str)
