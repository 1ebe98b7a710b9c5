"""What can be set of the agent: section [agent] of the configuration file, or EXHUME_AGENT_* of the environment, which wins."""

import re
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import chain
from typing import Any

from exhume.agent.cluster_report import Kubernetes
from exhume.config import from_environment, load, refuse_unknown, section, variables
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.errors import UsageError
from exhume.host.http.address import loopback, split_url


@dataclass(frozen=True, slots=True)
class Push:
    """[agent.push]: profiles out."""

    url: str = field(default="", metadata={"doc": "where profiles go: Pyroscope's address, or any receiver's; empty: nowhere"})
    form: str = field(default="pyroscope", metadata={"doc": "pyroscope (its /ingest), pprof (a plain POST) or otlp"})
    incidents: bool = field(default=True, metadata={"doc": "push the profile around each incident"})
    every_s: int = field(default=0, metadata={"doc": "push a continuous profile every so many seconds; 0: none"})
    namespaces: tuple[str, ...] = field(
        default=(), metadata={"doc": "Kubernetes namespaces whose pods' stacks may leave the node; host services always may"}
    )
    token_file: str = field(default="", metadata={"doc": "file with a bearer token for the receiver"})
    token_over_http: bool = field(
        default=False, metadata={"doc": "send the token over http:// to other hosts, where it can be read on the way"}
    )
    spool_mib: int = field(default=64, metadata={"doc": "what may wait on disk while the receiver is away; the oldest go"})
    labels: tuple[str, ...] = field(default=(), metadata={"doc": "labels of every profile, name=value each"})


@dataclass(frozen=True, slots=True)
class Audit:
    """[agent.audit]: the recurring audit."""

    every_h: int = field(default=24, metadata={"doc": "hours between audits of what runs by itself; 0: none"})
    policy: str = field(default="", metadata={"doc": "lifecycle policy to compare with (exhume audit --write-policy)"})


@dataclass(frozen=True, slots=True)
class Settings:
    dir: str = field(default="/var/lib/exhume/recording", metadata={"doc": "where the recording is kept"})
    host: str = field(default="/", metadata={"doc": "root of the node, where it is mounted into a container"})
    listen: str = field(default="127.0.0.1:9464", metadata={"doc": "address and port of the metrics"})
    tls_cert: str = field(default="", metadata={"doc": "certificate (PEM); with it the metrics are served by TLS alone"})
    tls_key: str = field(default="", metadata={"doc": "its key (PEM)"})
    auth_file: str = field(default="", metadata={"doc": "file with USER:PASSWORD that scrapers must send (basic auth)"})
    auth_over_http: bool = field(
        default=False, metadata={"doc": "allow auth_file without TLS beyond loopback, as behind a service mesh that encrypts"}
    )
    hz: int = field(default=49, metadata={"doc": "stack samples a second of each core; 0: none"})
    user_stacks: str = field(
        default="none", metadata={"doc": "stacks of programs: none, host (not those in containers and pods) or all"}
    )
    latency: bool = field(default=True, metadata={"doc": "watch for stalls of polls, softirqs and threads"})
    budget_mib: int = field(default=1024, metadata={"doc": "disk that the recording may use"})
    keep_s: int = field(default=900, metadata={"doc": "seconds of it that are kept beside pinned incidents"})
    around_s: int = field(default=120, metadata={"doc": "seconds that are pinned around an incident"})
    on: str = field(default="any", metadata={"doc": "kinds of findings that make an incident, apart by commas; or any"})
    cpu_limit_ratio: float = field(default=0.1, metadata={"doc": "share of one core that the agent may use, over a minute"})
    memory_limit_mib: int = field(default=250, metadata={"doc": "resident memory that the agent may use"})
    push: Push = field(default_factory=Push)
    audit: Audit = field(default_factory=Audit)
    kubernetes: Kubernetes = field(default_factory=Kubernetes)


_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}=[^\0-\x1f]{1,200}")
USER_STACKS = ("none", "host", "all")
FORMS = ("pyroscope", "pprof", "otlp")
_APART = {"push": Push, "audit": Audit, "kubernetes": Kubernetes}


def read(path: str | None = None, **given: Any) -> tuple[Settings, Thresholds]:
    """The file, then the environment, then what was typed, each above the one before it."""
    document = load(path)
    parts = (variables(f"EXHUME_AGENT_{name}", kind) for name, kind in _APART.items())
    refuse_unknown("EXHUME_AGENT", chain(variables("EXHUME_AGENT", Settings, tuple(_APART)), *parts))
    settings = section(document, "agent", Settings, tuple(_APART))
    settings = replace(settings, **from_environment("EXHUME_AGENT", Settings, tuple(_APART)))
    for name, kind in _APART.items():
        inner: Any = replace(section(document, f"agent.{name}", kind), **from_environment(f"EXHUME_AGENT_{name}", kind))
        settings = replace(settings, **{name: inner})
    settings = replace(settings, **{key: value for key, value in given.items() if value is not None})
    return _checked(settings), section(document, "thresholds", Thresholds)


def _checked(settings: Settings) -> Settings:
    if settings.user_stacks not in USER_STACKS:
        raise UsageError(f"agent.user_stacks must be one of {', '.join(USER_STACKS)}, not {settings.user_stacks!r}")
    if settings.hz > 999:
        raise UsageError(f"agent.hz must be below 1,000, not {settings.hz}; 49 and 97 are usual")
    if settings.budget_mib < 16:
        raise UsageError(f"agent.budget_mib must be 16 or more, not {settings.budget_mib}")
    if settings.keep_s < 120:
        raise UsageError(f"agent.keep_s must be 120 or more, not {settings.keep_s}: a verdict needs the last minute")
    if not settings.cpu_limit_ratio:
        raise UsageError("agent.cpu_limit_ratio must be more than 0: an agent that may use nothing can do nothing")
    if settings.memory_limit_mib < 64:
        raise UsageError(f"agent.memory_limit_mib must be 64 or more, not {settings.memory_limit_mib}")
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise UsageError("agent.tls_cert and agent.tls_key go together: one of them is missing")
    if settings.push.form not in FORMS:
        raise UsageError(f"agent.push.form must be one of {', '.join(FORMS)}, not {settings.push.form!r}")
    if settings.push.url and not settings.push.url.startswith(("http://", "https://")):
        raise UsageError(f"agent.push.url must begin with http:// or https://, not {settings.push.url!r}")
    try:
        receiver = split_url(settings.push.url).hostname or "" if settings.push.url else ""
    except ValueError:
        raise UsageError(
            f"agent.push.url must be an address as https://pyroscope.example:4040, not {settings.push.url!r}"
        ) from None
    if "@" in settings.push.url.split("//", 1)[-1].split("/", 1)[0]:
        raise UsageError("agent.push.url must hold no name and no password: agent.push.token_file is for the receiver's token")
    for label in settings.push.labels:
        if not _LABEL.fullmatch(label):
            raise UsageError(f"agent.push.labels has {label!r}, which is not name=value with a name of letters, digits and _")
    host, _ = address(settings.listen)
    if settings.auth_file and not settings.tls_cert and not loopback(host) and not settings.auth_over_http:
        raise UsageError(
            f"agent.auth_file on {settings.listen} needs agent.tls_cert: without it the password can be read on the way; "
            "agent.auth_over_http allows that"
        )
    push = settings.push
    plain = push.url.startswith("http://") and not loopback(receiver)
    if push.token_file and plain and not push.token_over_http:
        raise UsageError(
            "agent.push.token_file needs an https:// address: over http:// the token can be read on the way; "
            "agent.push.token_over_http allows that"
        )
    return settings


def address(listen: str) -> tuple[str, int]:
    """HOST:PORT, [HOST]:PORT for IPv6."""
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"agent.listen must be ADDRESS:PORT, as 127.0.0.1:9464, not {listen!r}")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def as_toml(settings: Settings) -> str:
    """What is set, as a file that can be taken as it is: every key with what it means."""
    lines = ["[agent]", *_lines(settings, _APART)]
    for name in _APART:
        lines += ["", f"[agent.{name}]", *_lines(getattr(settings, name))]
    return "\n".join(lines) + "\n"


def _lines(part: Settings | Push | Audit | Kubernetes, apart: dict[str, Any] | None = None) -> list[str]:
    values = asdict(part)
    told = [each for each in fields(part) if each.name not in (apart or {})]
    return [f"{each.name} = {_toml(values[each.name])}  # {each.metadata['doc']}" for each in told]


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        return f'"{"".join(map(_escaped, value))}"'
    return str(value)


def _escaped(character: str) -> str:
    if character.isprintable() and character not in '"\\':
        return character
    return f"\\u{ord(character):04x}" if ord(character) < 0x10000 else f"\\U{ord(character):08x}"
