"""Zombies by where they lived: what is one group and what is not, and that none is lost or counted twice."""

import uuid
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.sources.zombie_groups import Shapes, ZombieGroup, collapse

HASH = "4f0c2ab9d1e87365" * 4
POD = "0d1f7c5e-9a3b-4c2d-8e6f-1a2b3c4d5e6f"


def counts(groups: list[ZombieGroup]) -> dict[str, int]:
    return {group.path: len(group.members) for group in groups}


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/ecs.service", "/ecs.service"),
        ("/z123", "/z*"),
        ("/run-u4711.service", "/run-u*.service"),
        ("/user@1000.service/app.slice", "/user@*.service/app.slice"),
        (f"/pod{POD}/{HASH}", "/pod<uid>/<id>"),
        (f"/kubepods-besteffort-pod{POD.replace('-', '_')}.slice", "/kubepods-besteffort-pod<uid>.slice"),
        (f"/cri-containerd-{HASH}.scope", "/cri-containerd-<id>.scope"),
        (f"/kubepods/pod{HASH[:32]}", "/kubepods/pod<id>"),  # a static pod's id is a hash of its manifest
        (f"/docker/{HASH[:12]}", "/docker/<id>"),
        (f"/run-r{HASH[:32]}.scope", "/run-r<id>.scope"),
        ("/coredns-5d78c9869d-xkqzt", "/coredns-*-*"),
        ("/tmpq3x_9z1a", "/tmp*"),
        ("/job.a8Xk2Q", "/job.*"),
        ("/proc-sys-fs-binfmt_misc.mount", "/proc-sys-fs-binfmt_misc.mount"),
        ("/dev-hugepages.mount", "/dev-hugepages.mount"),
        ("/nginx.service", "/nginx.service"),
    ],
)
def test_what_a_machine_made_up_is_left_out(path: str, shape: str) -> None:
    assert Shapes()[path] == shape


def test_a_unit_that_died_again_and_again_is_one_group_by_its_own_name() -> None:
    assert counts(collapse([("/system.slice", "/worker-7.service")] * 68_440)) == {"/system.slice/worker-7.service": 68_440}


def test_names_that_differ_in_a_number_are_one_group_with_an_example() -> None:
    (group,) = collapse([("/exhume-test", f"/z{i}") for i in range(100)])
    assert (group.path, group.example, len(group.members)) == ("/exhume-test/z*", "/exhume-test/z0", 100)


def test_live_directories_are_kept_apart_even_if_they_differ_only_in_a_number() -> None:
    places = [(f"/user.slice/user-{1000 + i}.slice", f"/session-{j}.scope") for i in range(3) for j in range(5)]
    assert counts(collapse(places)) == {f"/user.slice/user-{1000 + i}.slice/session-*.scope": 5 for i in range(3)}


def test_what_is_the_same_in_all_of_a_group_keeps_its_name() -> None:
    places = [("/kubepods/burstable", f"/pod{POD}/{uuid.uuid4().hex * 2}") for _ in range(30)]
    assert counts(collapse(places)) == {f"/kubepods/burstable/pod{POD}/<id>": 30}


def test_pods_that_are_gone_are_one_group() -> None:
    places = [("/kubepods/burstable", f"/pod{uuid.uuid4()}/{uuid.uuid4().hex * 2}") for _ in range(30)]
    assert counts(collapse(places)) == {"/kubepods/burstable/pod<uid>/<id>": 30}


def test_many_suffixes_of_letters_alone_are_random_and_few_are_words() -> None:
    letters = "abcdefghij"
    suffixes = [a + b + "qwer" for a in letters for b in letters]
    assert counts(collapse([("/jobs", f"/build-{suffix}.scope") for suffix in suffixes])) == {"/jobs/build-*.scope": 100}
    words = ["nginx", "redis", "mysql", "kafka"]
    assert len(collapse([("/system.slice", f"/app-{word}.service") for word in words])) == 4


def test_units_of_one_length_are_not_random() -> None:
    letters = "aeiouabcdefghijklmnop"
    places = [("/system.slice", f"/{a}name.service") for a in set(letters)]
    assert len(collapse(places)) == len(set(letters))


def test_a_zombie_right_below_the_root_has_one_slash() -> None:
    (group,) = collapse([("/", "exhume-1"), ("/", "exhume-2")])
    assert (group.path, group.example) == ("/exhume-*", "/exhume-1")


def test_the_largest_group_comes_first() -> None:
    groups = collapse([("/a", "/b")] * 2 + [("/c", "/d")] * 3 + [("/e", "/f")])
    assert [len(group.members) for group in groups] == [3, 2, 1]


NAMES = st.one_of(
    st.text(st.characters(blacklist_characters="/\0"), min_size=1, max_size=20),
    st.from_regex(r"[a-c]{1,3}-?[0-9a-f]{0,14}(\.scope)?", fullmatch=True),
    st.uuids().map(str),
    st.sampled_from(["*", "<id>", "z*", ".", "pod", "z1", "z22"]),
)
PLACES = st.tuples(
    st.sampled_from(["/", "/a", "/a/b1", "/a/b2"]), st.lists(NAMES, min_size=1, max_size=4).map("/".join).map("/{}".format)
)


@given(st.lists(PLACES, max_size=60))
def test_every_zombie_is_in_exactly_one_group(places: list[tuple[str, str]]) -> None:
    groups = collapse(places)
    assert sorted(member for group in groups for member in group.members) == list(range(len(places)))
    for group in groups:
        assert group.members
        assert group.example == "".join(places[group.members[0]])
        assert len({places[member][0] for member in group.members}) == 1
        assert group.path.count("/") == group.example.count("/")
    assert sum(Counter(places).values()) == sum(len(group.members) for group in groups)


@given(st.lists(PLACES, min_size=1, max_size=40))
def test_the_groups_do_not_depend_on_the_order_of_the_zombies(places: list[tuple[str, str]]) -> None:
    assert counts_by_members(places) == counts_by_members(places[::-1])


def counts_by_members(places: list[tuple[str, str]]) -> list[tuple[str, tuple[tuple[str, str], ...]]]:
    return sorted((group.path, tuple(sorted(places[member] for member in group.members))) for group in collapse(places))


@given(st.lists(st.integers(0, 10**11 - 1), min_size=1, max_size=30, unique=True), st.sampled_from(["z", "job-", "x.y_"]))
def test_numbers_alone_never_make_two_groups(numbers: list[int], stem: str) -> None:
    assert len(collapse([("/a", f"/{stem}{number}") for number in numbers])) == 1
