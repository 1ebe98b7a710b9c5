"""Credentials that a program prints: exec plugins, as cloud providers use them (client.authentication.k8s.io)."""

import json
import os
import subprocess
from dataclasses import dataclass

from exhume.cluster.document import seconds, text_in, within
from exhume.cluster.identity import Exec
from exhume.errors import ExhumeError
from exhume.host.quantities import SECOND, duration
from exhume.text import decode, from_json, printable

PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Credential:
    token: str = ""
    certificate: bytes = b""
    key: bytes = b""
    expires_s: float | None = None


def ask(plugin: Exec) -> Credential:
    """Run it without a terminal: one that wants to ask a person is told so and fails."""
    spec = {"interactive": False, **({"cluster": from_json(plugin.cluster)} if plugin.cluster else {})}
    about = {"apiVersion": plugin.version, "kind": "ExecCredential", "spec": spec}
    environment = {**os.environ, **dict(plugin.environment), "KUBERNETES_EXEC_INFO": json.dumps(about)}
    name = printable(plugin.command[0])
    try:
        ended = subprocess.run(
            plugin.command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S, check=False
        )
    except FileNotFoundError:
        hint = f": {printable(plugin.hint, 300)}" if plugin.hint else ""
        raise ExhumeError(f"{name}, which the kubeconfig wants for credentials, is not installed{hint}") from None
    except subprocess.TimeoutExpired:
        raise ExhumeError(f"{name} did not bring credentials within {duration(PATIENCE_S * SECOND)}") from None
    except (OSError, ValueError) as error:
        raise ExhumeError(
            f"{name}, which the kubeconfig wants for credentials, cannot be run: {printable(str(error))}"
        ) from None
    if ended.returncode:
        last = printable(decode(ended.stderr.strip().rpartition(b"\n")[2]), 200)
        raise ExhumeError(f"{name} brought no credentials (exit code {ended.returncode}): {last or 'it said nothing'}")
    return read(ended.stdout, name)


def read(printed: bytes, name: str) -> Credential:
    try:
        told = from_json(printed)
    except ValueError:
        told = None
    if not isinstance(told, dict) or told.get("kind") != "ExecCredential":
        raise ExhumeError(f"what {name} printed is no ExecCredential")
    status = within(told, "status")
    found = Credential(
        text_in(status, "token"),
        text_in(status, "clientCertificateData").encode("utf-8", "replace"),
        text_in(status, "clientKeyData").encode("utf-8", "replace"),
        seconds(text_in(status, "expirationTimestamp")),
    )
    if not found.token and not (found.certificate and found.key):
        raise ExhumeError(f"what {name} printed holds neither a token nor a certificate")
    return found
