"""Layers over each other give what a container would see; no manifest brings anything but a tree or a sentence."""

import gzip
import json
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.errors import ExhumeError
from exhume.host.tree import Entry
from exhume.image.manifests import layer_names
from exhume.image.opening import open_image
from tests.examples import examples
from tests.image import archives
from tests.image.archives import UNIT, Info, directory, link, member, tar

BASE = [
    directory("etc"),
    directory("etc/systemd/system"),
    member("etc/systemd/system/ecs.service", UNIT),
    member("etc/systemd/system/kept.service", UNIT),
    directory("etc/cron.d"),
    member("etc/cron.d/old", b"old"),
    directory("usr/lib/systemd/system"),
    link("lib", "usr/lib"),
    directory("usr/bin"),
    member("usr/bin/agent", b"ELF", mode=0o755),
    member("usr/bin/other", b"ELF", mode=0o755),
]
ABOVE = [
    member("etc/systemd/system/.wh.ecs.service"),
    member("etc/systemd/system/new.service", b"new"),
    member("etc/cron.d/.wh..wh..opq"),
    member("etc/cron.d/fresh", b"fresh"),
    member("usr/bin/.wh.agent"),
    member("lib/systemd/system/through.service", b"through"),
    member("etc/systemd/system/hard.service", kind=tarfile.LNKTYPE, target="etc/systemd/system/kept.service"),
    member(".wh..wh.plnk/1.2", b"aufs"),
]


def image(path: Path, layers: list[list[Info]], form: str) -> str:
    """An image in one of the forms in which tools save one."""
    raw = [tar(layer) for layer in layers]
    if form == "docker":
        path.write_bytes(archives.docker(raw))
    elif form == "docker.gz":
        path.write_bytes(gzip.compress(archives.docker(raw)))
    else:
        files = archives.oci([gzip.compress(one, mtime=0) for one in raw])
        if form == "oci":
            path.write_bytes(tar(member(*one) for one in files.items()))
        else:
            for name, content in files.items():
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                (path / name).write_bytes(content)
    return str(path)


@pytest.mark.parametrize("form", ["docker", "docker.gz", "oci", "layout"])
def test_layers_hide_replace_and_add(tmp_path: Path, form: str) -> None:
    with open_image(image(tmp_path / "image", [BASE, ABOVE], form)) as tree:
        units = "/etc/systemd/system"
        assert tree.names(units) == ["hard.service", "kept.service", "new.service"]
        assert tree.read(f"{units}/hard.service") == UNIT
        assert tree.names("/etc/cron.d") == ["fresh"]
        assert tree.names("/usr/bin") == ["other"]
        assert tree.entry("/usr/bin/agent") is None
        assert tree.real("/lib/systemd/system/through.service") == "/usr/lib/systemd/system/through.service"
        assert tree.entry("/lib", follow=False) == Entry("link", 0o777, 0, "usr/lib")
        assert tree.names("/") == ["etc", "lib", "usr"]
        assert tree.troubles == []


def test_what_a_layer_hides_it_may_bring_itself(tmp_path: Path) -> None:
    first = [member("etc/a/one", b"1"), member("srv/x", b""), member("etc/file", b"1")]
    second = [member("etc/.wh.a"), member("etc/a/two", b"2"), member("srv/.wh.x"), member("srv/x", b""), directory("etc/file")]
    with open_image(image(tmp_path / "image", [first, second], "docker")) as tree:
        assert tree.names("/etc/a") == ["two"]
        assert tree.names("/srv") == ["x"]
        assert tree.entry("/etc/file") == Entry("directory", 0o755)


def test_a_layer_that_is_saved_once_and_used_twice(tmp_path: Path) -> None:
    """Older Dockers save the second as a link to the first; the upper one decides."""
    first, second = tar([member("etc/a", b"first")]), tar([member("etc/a", b"second")])
    names = ["1/layer.tar", "2/layer.tar", "3/layer.tar"]
    infos = [
        member(names[0], first),
        member(names[1], second),
        link(names[2], "../1/layer.tar"),
        member("manifest.json", json.dumps([{"Layers": names}]).encode()),
    ]
    (tmp_path / "image").write_bytes(tar(infos))
    with open_image(str(tmp_path / "image")) as tree:
        assert tree.read("/etc/a") == b"first"


def refused(tmp_path: Path, files: dict[str, bytes]) -> str:
    (tmp_path / "image").write_bytes(tar(member(*one) for one in files.items()))
    with pytest.raises(ExhumeError) as told, open_image(str(tmp_path / "image")):
        pass
    start = f"{tmp_path}/image cannot be read as an image: "
    assert str(told.value).startswith(start)
    return str(told.value).removeprefix(start)


def test_a_missing_layer_is_named(tmp_path: Path) -> None:
    manifest = json.dumps([{"Layers": ["a/layer.tar", "../../etc/passwd"]}]).encode()
    said = refused(tmp_path, {"manifest.json": manifest, "a/layer.tar": tar([member("etc/a")])})
    assert said == "1 of its 2 layers are missing, the first of them ../../etc/passwd; save the image again."


def test_a_damaged_layer_is_named(tmp_path: Path) -> None:
    manifest = json.dumps([{"Layers": ["a/layer.tar"]}]).encode()
    said = refused(tmp_path, {"manifest.json": manifest, "a/layer.tar": b"no tar" * 1000})
    assert said == "layer a/layer.tar is damaged: it has a member whose header is damaged."


def test_of_several_images_none_is_guessed(tmp_path: Path) -> None:
    manifest = json.dumps([{"RepoTags": [f"node:{number}"], "Layers": []} for number in range(10)]).encode()
    names = ", ".join(f"node:{number}" for number in range(8))
    assert (
        refused(tmp_path, {"manifest.json": manifest})
        == f"it holds 10 images ({names} and 2 more); save the one that is meant alone."
    )


def index(platforms: list[str]) -> dict[str, bytes]:
    """An OCI layout for several platforms, each with one file that names it."""
    files: dict[str, bytes] = {}
    described = []
    for platform in platforms:
        one = archives.oci([tar([member("etc/platform", platform.encode())])])
        system, _, machine = platform.partition("/")
        descriptor = json.loads(one["index.json"])["manifests"][0]
        described.append(descriptor | {"platform": {"os": system, "architecture": machine}})
        files |= one
    inner = json.dumps({"manifests": described}).encode()
    name, descriptor = archives.blob(inner)
    return files | {name: inner, "index.json": json.dumps({"manifests": [descriptor]}).encode()}


def test_of_several_platforms_this_machine_s_is_taken(tmp_path: Path) -> None:
    own = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    files = index(["linux/s390x", f"linux/{own}", "unknown/unknown"])
    (tmp_path / "image").write_bytes(tar(member(*one) for one in files.items()))
    with open_image(str(tmp_path / "image")) as tree:
        assert tree.read("/etc/platform") == f"linux/{own}".encode()
    said = refused(tmp_path, index(["linux/s390x", "linux/mips"]))
    assert said == f"it is for linux/s390x, linux/mips, not for this machine's linux/{own}; save the one that is meant alone."


def test_a_layout_s_links_lead_to_nothing_outside(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(tar([member("etc/secret", b"secret")]))
    files = archives.oci([tar([member("etc/secret", b"secret")])])
    for name, content in files.items():
        path = tmp_path / "image" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content == (tmp_path / "secret").read_bytes():
            path.symlink_to(tmp_path / "secret")
        else:
            path.write_bytes(content)
    with pytest.raises(ExhumeError, match="1 of its 1 layers are missing"), open_image(str(tmp_path / "image")):
        pass


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10) | st.just("sha256:" + "a" * 64),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ("manifests", "layers", "Layers", "digest", "platform", "os", "architecture", "RepoTags", "annotations")
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@settings(max_examples=examples(150))
@given(JSON, JSON, JSON)
def test_any_manifest_brings_names_or_a_sentence(manifest: object, outer: object, inner: object) -> None:
    documents = {
        "manifest.json": json.dumps(manifest).encode(),
        "index.json": json.dumps(outer).encode(),
        "blobs/sha256/" + "a" * 64: json.dumps(inner).encode(),
    }
    there = {name: name for name in documents}
    for some in (documents, {name: text for name, text in documents.items() if name != "manifest.json"}):
        try:
            assert set(layer_names(some, there)) <= set(there)
        except ExhumeError:
            continue


@given(st.binary(max_size=200))
def test_garbage_for_a_manifest_brings_a_sentence(garbage: bytes) -> None:
    for raw in (garbage, b"[" * 100_000, b'{"manifests": ' * 20_000):
        for name in ("manifest.json", "index.json"):
            with pytest.raises(ExhumeError):
                layer_names({name: raw}, {})


PLACES = st.sampled_from(["etc/a", "etc/b", "etc/b/c", "srv/a", "srv/b", "srv/b/c", "srv"])
STEPS = st.tuples(st.sampled_from(["file", "directory", "hide", "opaque"]), PLACES)


@settings(max_examples=examples(150))
@given(st.lists(st.lists(STEPS, max_size=5, unique_by=lambda step: step[1]), min_size=1, max_size=4))
def test_layers_are_as_if_they_were_unpacked_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, layers: list[list[tuple[str, str]]]
) -> None:
    """The oracle is a set of paths and a few rules: hide first, then add; a file in the way of a directory goes."""
    model: dict[str, str] = {}
    made = []
    for layer in layers:
        infos = []
        additions = [(kind, path) for kind, path in sorted(layer, key=lambda step: step[1]) if kind in ("file", "directory")]
        files = [path for kind, path in additions if kind == "file"]
        for kind, path in layer:
            if kind == "hide":
                infos.append(member("/".join([*path.split("/")[:-1], ".wh." + path.split("/")[-1]])))
                model = {at: what for at, what in model.items() if at != path and not at.startswith(path + "/")}
        for kind, path in layer:
            if kind == "opaque" and not any((path + "/").startswith(file + "/") for file in files):
                infos += [directory(path), member(path + "/.wh..wh..opq")]
                model = {at: what for at, what in model.items() if not at.startswith(path + "/")}
                additions.append(("directory", path))
        for kind, path in sorted(additions, key=lambda step: step[1]):
            if any(path.startswith(file + "/") for file in files):
                continue  # no archive has something below a file
            infos.append(directory(path) if kind == "directory" else member(path, b"x"))
            parts = path.split("/")
            for depth in range(1, len(parts)):
                model["/".join(parts[:depth])] = "directory"
            if kind == "file":
                model = {at: what for at, what in model.items() if not at.startswith(path + "/")}
            model[path] = kind
        made.append(infos)
    with open_image(image(tmp_path_factory.mktemp("layers") / "image", made, "docker")) as tree:
        said = {at[1:]: entry for at in archives.everything(tree) if at != "/" and (entry := tree.entry(at))}
        assert {at: entry.kind for at, entry in said.items()} == model
