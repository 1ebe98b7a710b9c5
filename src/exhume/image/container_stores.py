"""Where podman and containerd write down their containers: a bbolt database or SQLite, read as far as they can be."""

from collections.abc import Iterator

from exhume.host.quantities import size
from exhume.host.tree import Tree, complain
from exhume.image import bolt
from exhume.image.sqlite import Database
from exhume.text import decode

CONTAINERD = "/var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db"
PODMAN = "/var/lib/containers/storage"
MOST = 5000


def podman(tree: Tree) -> Iterator[tuple[str, bytes]]:
    """The JSON of each container: of SQLite (libpod/sqlite_state_internal.go) or of bbolt (libpod/boltdb_state_internal.go)."""
    path = f"{PODMAN}/db.sql"
    if database := Database.read(tree, path):
        with database:
            for (text,) in database.rows("select JSON from ContainerConfig limit ?", MOST):
                if isinstance(text, bytes):
                    yield path, text
    path = f"{PODMAN}/libpod/bolt_state.db"
    for container in _buckets(tree, path, b"ctr"):
        if (text := container.get(b"config")) is not None:
            yield path, text


def containerd(tree: Tree) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Name, image and labels of each container in each namespace: v1/NAMESPACE/containers/ID (metadata/buckets.go)."""
    if (database := _bolt(tree, CONTAINERD)) is None:
        return
    try:
        version = database.root().bucket(b"v1")
        for _, namespace in version.buckets() if version else ():
            containers = namespace.bucket(b"containers")
            for name, container in containers.buckets() if containers else ():
                labels = container.bucket(b"labels")
                pairs = {decode(key): decode(value) for key, value in labels.values()} if labels else {}
                yield decode(name), decode(container.value(b"image") or b""), pairs
    except bolt.Malformed as why:
        complain(tree.troubles, f"{CONTAINERD} cannot be read to its end: {why}.")


def _buckets(tree: Tree, path: str, name: bytes) -> Iterator[dict[bytes, bytes]]:
    if (database := _bolt(tree, path)) is None:
        return
    try:
        parent = database.root().bucket(name)
        for _, bucket in parent.buckets() if parent else ():
            yield dict(bucket.values())
    except bolt.Malformed as why:
        complain(tree.troubles, f"{path} cannot be read to its end: {why}.")


def _bolt(tree: Tree, path: str) -> bolt.Bolt | None:
    entry = tree.entry(path)
    if entry is None or entry.kind != "file":
        return None
    if entry.size > bolt.LARGEST:
        complain(tree.troubles, f"{path} has {size(entry.size)}, more than are read.")
        return None
    try:
        return bolt.Bolt(tree.read(path, bolt.LARGEST) or b"")
    except bolt.Malformed as why:
        complain(tree.troubles, f"{path} cannot be read: {why}.")
        return None
