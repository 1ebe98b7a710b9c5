"""Quadlet files: podman's generator makes a service of each at boot (podman-systemd.unit(5)). It is modelled, never run."""

from exhume.host.commands import shown
from exhume.host.service import Service
from exhume.host.systemd.manager import Defaults, read_defaults
from exhume.host.systemd.places import QUADLETS
from exhume.host.systemd.start_limit import restart
from exhume.host.systemd.unit_file import Sections, merge, parse
from exhume.host.tree import Tree
from exhume.text import from_path

_GENERATORS = tuple(
    f"{place}/podman-system-generator"
    for place in (
        "/usr/lib/systemd/system-generators",
        "/lib/systemd/system-generators",
        "/usr/local/lib/systemd/system-generators",
    )
)
# What each kind becomes: NAME.container is NAME.service, the others say what they are in the name.
_KINDS = {".container": "", ".kube": "", ".pod": "-pod"}
_IMAGES = {".container": ("Container", "Image"), ".kube": ("Kube", "Yaml"), ".pod": ("Pod", "PodName")}
MOST = 1000


def read(tree: Tree) -> list[Service]:
    generated = any(tree.entry(path) for path in _GENERATORS)
    defaults = read_defaults(tree)
    found: dict[str, Service] = {}
    for place in QUADLETS:
        for name in tree.names(place):
            stem, dot, ending = name.rpartition(".")
            if dot + ending not in _KINDS or not stem or name in found or len(found) >= MOST:
                continue
            path = f"{place}/{name}"
            entry, text = tree.entry(path), tree.read(path)
            if entry is None or entry.kind != "file" or text is None:
                continue
            drop_ins = [tree.read(f"{path}.d/{one}") for one in tree.names(f"{path}.d") if one.endswith(".conf")]
            sections = merge([parse(text), *(parse(one) for one in drop_ins if one)])
            found[name] = _service(stem + _KINDS[dot + ending], dot + ending, path, sections, generated, defaults)
    return list(found.values())


def _service(stem: str, kind: str, path: str, sections: Sections, generated: bool, defaults: Defaults) -> Service:
    pulled = sections.words("Install", "WantedBy") + sections.words("Install", "RequiredBy")
    why = ""
    if not pulled:
        why = "it has no WantedBy= or RequiredBy=, so nothing starts it by itself"
    elif not generated:
        why = "podman's generator is not on this image, so no service is made of it"
    line = shown(" ".join(part for key in ("Entrypoint", "Exec") if (part := sections.last("Container", key))))
    return Service(
        name=from_path(f"{stem}.service"),
        kind="container",
        state="disabled" if why else "enabled",
        starts=not why,
        path=path,
        description=sections.last(*_IMAGES[kind])[:1000],
        command=(line,) if line else (),
        pulled_by=() if why else pulled,
        needs=sections.every_word("Unit", "Requires") + sections.every_word("Unit", "BindsTo"),
        restart=restart(sections, defaults),
        cgroups="podman gives its containers a cgroup below the service's",
        conditions=(why,) if why else (),
        notes=("a quadlet file: podman makes a service of it at boot",),
    )
