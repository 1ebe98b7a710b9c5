"""Which layers make an image: docker-save's manifest.json, and the OCI image layout's index.json (OCI: image-layout.md).

Pure functions of the documents in an archive; all of them are hostile until they have the form that is expected.
"""

import os
import re
from collections.abc import Mapping
from typing import Any, Final

from exhume.errors import UsageError
from exhume.image.streams import Damaged
from exhume.text import from_json, printable

MOST_LAYERS: Final = 1000  # overlayfs takes 500 (OVL_MAX_STACK, fs/overlayfs/params.h), Docker 127
_DEEPEST: Final = 4  # an index may name another one
_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}  # GOARCH for uname -m
_DIGEST: Final = re.compile(r"[a-z0-9]+(?:[+._-][a-z0-9]+)*:[a-zA-Z0-9=_-]{16,512}")  # descriptor.md


def layer_names(documents: Mapping[str, bytes], there: Mapping[str, str]) -> list[str]:
    """The names of an image's layers in the archive, the lowest first. `there` has every name, and where links lead."""
    if "manifest.json" in documents:
        layers = _docker(documents["manifest.json"])
        if "index.json" not in documents or all(there.get(name) for name in layers):
            return _present(layers, there)
    return _present(_oci(documents), there)


def _present(layers: list[str], there: Mapping[str, str]) -> list[str]:
    if len(layers) > MOST_LAYERS:
        raise Damaged(f"its manifest lists {len(layers):,} layers, and none has more than {MOST_LAYERS:,}")
    missing = [name for name in layers if not there.get(name)]
    if missing:
        first = printable(missing[0])
        raise Damaged(
            f"{len(missing)} of its {len(layers)} layers are missing, the first of them {first}; save the image again"
        )
    found = [there[name] for name in layers]
    return list(dict.fromkeys(found[::-1]))[::-1]  # of one that comes twice the upper one decides


def _docker(raw: bytes) -> list[str]:
    images = [one for one in _list(_json(raw, "manifest.json"), "manifest.json") if isinstance(one, dict)]
    if not images:
        raise Damaged("its manifest.json lists no image")
    if len(images) > 1:
        tags = [str(tag) for one in images for tag in _list(one.get("RepoTags") or [], "RepoTags")]
        raise UsageError(f"it holds {len(images)} images ({_few(tags)}); save the one that is meant alone")
    layers = _list(images[0].get("Layers"), "Layers")
    if not all(isinstance(name, str) for name in layers):
        raise Damaged("its manifest.json is damaged: a layer has no name")
    return [clean(name) for name in layers]


def _oci(documents: Mapping[str, bytes]) -> list[str]:
    if "index.json" not in documents:
        raise Damaged("neither its manifest.json nor its index.json can be read")
    document = _json(documents["index.json"], "index.json")
    for _ in range(_DEEPEST):
        if not isinstance(document, dict):
            break
        if "layers" in document:
            return [_blob(one) for one in _list(document["layers"], "layers")]
        name = _blob(_chosen(_list(document.get("manifests"), "manifests")))
        if name not in documents:
            raise Damaged(f"{name}, which its index names, is missing; save the image again")
        document = _json(documents[name], name)
    raise Damaged("its index leads to no manifest")


def _chosen(descriptors: list[Any]) -> Any:
    """The one image of an index, or the one for this machine among those for several."""
    images = [one for one in descriptors if isinstance(one, dict) and _platform(one) != "unknown/unknown"]  # attestations
    if not images:
        raise Damaged("its index lists no image")
    if len(images) == 1:
        return images[0]
    own = "linux/" + _MACHINES.get(os.uname().machine, os.uname().machine)
    fitting = [one for one in images if _platform(one) == own]
    if len(fitting) == 1:
        return fitting[0]
    if fitting or not any(map(_platform, images)):
        raise UsageError(
            f"it holds {len(images)} images ({_few([_tag(one) for one in images])}); save the one that is meant alone"
        )
    platforms = _few([_platform(one) for one in images])
    raise UsageError(f"it is for {platforms}, not for this machine's {own}; save the one that is meant alone")


def _platform(descriptor: dict[str, Any]) -> str:
    platform = descriptor.get("platform")
    return f"{platform.get('os')}/{platform.get('architecture')}" if isinstance(platform, dict) else ""


def _tag(descriptor: dict[str, Any]) -> str:
    notes = descriptor.get("annotations")
    return str(notes.get("org.opencontainers.image.ref.name", "")) if isinstance(notes, dict) else ""


def _blob(descriptor: Any) -> str:
    digest = descriptor.get("digest") if isinstance(descriptor, dict) else None
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise Damaged("its index or manifest has a descriptor without a digest")
    return "blobs/" + digest.replace(":", "/", 1)


def clean(name: str) -> str:
    """A name in the archive without ./ and doubled slashes; one that leads out of it is no name of it, and is not found."""
    return "/".join(part for part in name.split("/") if part not in ("", "."))


def _json(raw: bytes, name: str) -> Any:
    try:
        return from_json(raw)
    except ValueError:
        raise Damaged(f"its {printable(name, 100)} is no JSON") from None


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise Damaged(f"its {name} is damaged: a list was expected")
    return value


def _few(names: list[str]) -> str:
    shown = [printable(name, 60) for name in dict.fromkeys(names) if name]
    return ", ".join(shown[:8]) + (f" and {len(shown) - 8} more" if len(shown) > 8 else "") or "without names"
