"""bbolt databases: what was written is read, and damage ends in a reason."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.image import bolt, containers
from exhume.image.container_stores import CONTAINERD
from tests.examples import examples
from tests.image import bolt_file
from tests.image.planted import Planted


def test_pages_that_point_in_circles_end_it() -> None:
    data = bytearray(bolt_file.write({b"v1": {}}))
    at = 3 * bolt_file.PAGE
    # The root becomes a branch whose one child is itself.
    data[at + 8 : at + 10] = b"\x01\x00"
    data[at + 24 : at + 32] = (3).to_bytes(8, "little")
    with pytest.raises(bolt.Malformed):
        list(bolt.Bolt(bytes(data)).root().values())


KEYS = st.binary(min_size=1, max_size=6)
TREES: st.SearchStrategy[Any] = st.recursive(
    st.dictionaries(KEYS, st.binary(max_size=12), max_size=4),
    lambda inner: st.dictionaries(KEYS, st.binary(max_size=12) | inner, max_size=4),
    max_leaves=8,
)


def plain(bucket: bolt.Bucket) -> dict[bytes, Any]:
    return {**dict(bucket.values()), **{name: plain(inner) for name, inner in bucket.buckets()}}


@settings(max_examples=examples(50))
@given(TREES, st.booleans())
def test_what_was_written_is_read(tree: Any, inline: bool) -> None:
    root = bolt.Bolt(bolt_file.write(tree, inline)).root()
    assert plain(root) == tree
    for name, value in tree.items():
        assert root.value(name) == (value if isinstance(value, bytes) else None)
        assert (root.bucket(name) is not None) == isinstance(value, dict)


@settings(max_examples=examples(80))
@given(TREES, st.lists(st.tuples(st.integers(0, 25000), st.integers(0, 255)), max_size=30), st.booleans())
def test_any_damage_is_a_reading_or_a_reason(tree: Any, damage: list[tuple[int, int]], inline: bool) -> None:
    data = bytearray(bolt_file.write({b"v1": tree, b"ctr": tree}, inline))
    for position, value in damage:
        # Half of the damage where the pages' heads are.
        data[(position if position % 2 else position // 4096 * 4096 + position % 64) % len(data)] = value
    files = {CONTAINERD: bytes(data), "/var/lib/containers/storage/libpod/bolt_state.db": bytes(data)}
    tree_ = Planted(files)
    assert all(service.kind == "container" for service in containers.read(tree_))
    assert all(trouble.endswith(".") for trouble in tree_.troubles)
