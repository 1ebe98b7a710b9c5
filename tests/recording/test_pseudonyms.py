"""Pseudonyms: nothing that a person would recognise stays, everything that a detector reads from a name does."""

import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.host.owners import owner
from exhume.recording.pseudonymised import pseudonymised
from exhume.recording.pseudonyms import Pseudonyms
from exhume.recording.recording import Node, Recording, labels
from exhume.recording.schema import TABLES
from exhume.sources.interrupts import queue_of
from exhume.sources.kernel_lines import FORMS, classify
from exhume.sources.zombie_groups import Shapes
from tests.examples import examples
from tests.recording import made

UID = "1234abcd-0000-4111-8222-abcdef012345"
ID = "0123456789abcdef" * 4
WORDS = [
    word for form in FORMS for word in re.findall(r"[A-Za-z][\w'-]*", re.sub(r"\{[^}]*\}", " ", form.format) + form.driver)
]
HOSTILE = st.text(max_size=40) | st.binary(max_size=20).map(lambda raw: raw.decode("utf-8", "backslashreplace"))


def names(key: bytes = b"k" * 32) -> Pseudonyms:
    return Pseudonyms(key, WORDS)


def test_a_name_is_always_the_same_pseudonym_and_another_in_another_bundle() -> None:
    one, other = names(), names(b"o" * 32)
    assert one.unit("falcon.service") == one.unit("falcon.service") != other.unit("falcon.service")
    assert re.fullmatch(r"unit-[a-z]{4}\.service", one.unit("falcon.service"))
    assert one.unit("falcon.service").startswith(f"unit-{one.program('falcon').removeprefix('process-')}.")


def test_a_path_keeps_its_depth_its_slices_and_whose_it_is() -> None:
    for path in (
        f"/kubepods/burstable/pod{UID}/{ID}",
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice/crio-{ID}.scope",
        f"/kubepods/pod{'ab12' * 8}/{ID}",
        f"/system.slice/docker-{ID}.scope",
        f"/docker/{ID}",
        f"/ecs/{ID[:32]}-1234567890",
        "/system.slice/falcon@gpu7.service/worker",
    ):
        hidden = names().path(path)
        before, after = owner(path), owner(hidden)
        assert hidden.count("/") == path.count("/")
        assert [bool(part) for part in (before.unit, before.pod, before.container)] == [
            bool(part) for part in (after.unit, after.pod, after.container)
        ]
        assert before.runtime == after.runtime
        assert not {ID, UID, UID.replace("-", "_"), "falcon", "gpu7", "ab12ab12"} & set(re.split(r"[/@.]", hidden))
        assert all(secret not in hidden for secret in (ID, UID, "falcon", "gpu7", "1234567890", "ab12ab12"))


def test_the_id_of_a_container_is_the_same_in_a_path_in_its_column_and_short_in_a_message() -> None:
    known = names()
    path = known.path(f"/kubepods/pod{UID}/{ID}")
    assert known.container(ID) == path.rsplit("/", 1)[1]
    assert known.pod(UID) in path
    assert known.text(f"container {ID[:12]} of pod {UID}") == f"container {known.container(ID)[:12]} of pod {known.pod(UID)}"


def test_what_a_machine_made_up_still_looks_so_and_names_that_somebody_gave_are_not_mixed_up() -> None:
    known, shapes = names(), Shapes()
    runs = {shapes[known.path(f"/falcon/job-{number}/x7f3kq{number}2")] for number in range(30)}
    assert len(runs) == 1
    given_names = [known.path(f"/falcon/{name}") for name in ("billing", "search", "ads", "ranking")]
    assert len({shapes[path] for path in given_names}) == 4


def test_threads_of_the_kernel_and_programs_that_everybody_has_keep_their_names() -> None:
    for comm in (
        "kswapd0",
        "ksoftirqd/39",
        "napi/eth0-8194",
        "kworker/3:1",
        "jbd2/nvme0n1-8",
        "swapper/7",
        "kubelet",
        "python3.11",
    ):
        assert names().program(comm) == comm
    assert "falcon" not in names().program("napi/falcon0-12")
    assert names().program("napi/falcon0-12").endswith("-12")
    assert "falcon" not in names().program("kworker/u8:2-falcon")
    assert names().program("systemd-falcon") != "systemd-falcon"


def test_the_queue_of_an_interrupt_is_still_seen() -> None:
    known = names()
    assert known.interrupt("eth0-Tx-Rx-5") == "eth0-Tx-Rx-5"
    hidden = known.interrupt("falcon0-Tx-Rx-5")
    assert queue_of(hidden, "tx") == (known.device("falcon0"), 5)
    assert known.device("enx0a1b2c3d4e5f") != "enx0a1b2c3d4e5f"


def test_lines_of_the_kernel_are_still_understood_without_what_is_private_in_them() -> None:
    known = names()
    known.program("falcon-train")
    for line in (
        (
            "ena 0000:20:03.0 eth0: TX q 5 is paused for too long (threshold 5000000). Time since last napi 6596000 usec. "
            "napi scheduled: 1"
        ),
        "watchdog: BUG: soft lockup - CPU#39 stuck for 22s! [falcon-train:3021]",
        "INFO: task falcon-train:77 blocked for more than 120 seconds.",
        (
            f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/kubepods/pod{UID},task_memcg=/kubepods/pod{UID}/{ID},"
            "task=falcon-train,pid=4242,uid=0"
        ),
        "Memory cgroup out of memory: Killed process 4242 (falcon-train) total-vm:10kB, anon-rss:5kB",
    ):
        hidden = known.text(line)
        before, after = classify(line), classify(hidden)
        assert before is not None
        assert after is not None
        assert after.kind == before.kind
        assert "falcon" not in hidden
        assert UID not in hidden
        assert ID not in hidden
        assert [value for _, value in after.fields if value.isdecimal()] == [v for _, v in before.fields if v.isdecimal()]


def test_addresses_files_and_words_that_nobody_vouches_for_go_from_running_text() -> None:
    known = names()
    known.host("falcon01.corp.example")
    said = known.text(
        "falcon01 (falcon01.corp.example) got 10.1.2.3:8080, fe80::1ff:fe23 and 0a:1b:2c:3d:4e:5f from https://git.corp.example/"
        "secret?token=hunter2 and /home/bob/keys.txt: permission denied, 12 times in 300 ms at 0000:20:03.0"
    )
    for secret in ("falcon", "corp", "10.1.2.3", "fe80", "1b:2c", "hunter2", "secret", "bob", "keys"):
        assert secret not in said
    assert "permission denied, 12 times in 300 ms at 0000:20:03.0" in said


def test_an_address_inside_a_name_goes_too() -> None:
    known = names()
    for name in ("ip-10-77-3-4.ec2.internal", "worker_10.77.3.4x", "10.77.3.4a", "pod-10-77-3-4"):
        for hidden in (
            known.text(f"host {name} is gone"),
            known.program(name),
            known.path(f"/{name}"),
            known.unit(f"{name}.service"),
        ):
            assert re.search(r"10.77.3.4", hidden) is None


@given(st.lists(HOSTILE, max_size=8))
@settings(max_examples=examples(150))
def test_two_names_are_never_one_pseudonym(given_names: list[str]) -> None:
    known = names()
    different = {name for name in given_names if name}
    assert len({known.program(name) for name in different}) == len(different)
    assert len({known.function(name) for name in different}) == len(different)
    assert all(known.mapping.get(pseudonym) is not None for pseudonym in map(known.image, different))


@given(HOSTILE, st.sampled_from(["{}", "task {} was", "[{}:12]", "/a/{}/b", "a={},b", "{}.service failed", "'{}'", "x{}y"]))
@settings(max_examples=examples(300))
def test_no_secret_survives_in_any_text_whatever_surrounds_it(around: str, form: str) -> None:
    said = names().text(form.format("falcon-hunter2") + around + form.format(ID))
    assert "falcon" not in said
    assert "hunter2" not in said
    assert ID not in said


@given(made.recordings())
@settings(max_examples=examples(40))
def test_any_recording_keeps_its_rows_and_its_numbers(recording: Recording) -> None:
    hidden = pseudonymised(recording, names())
    for name, table in recording.tables.items():
        assert len(hidden[name]) == len(table)
        for column in table.schema.columns:
            if column.kind in ("time", "int"):
                assert hidden[name].ints(column.name).tolist() == table.ints(column.name).tolist()
            elif column.kind == "list":
                assert hidden[name].lists(column.name) == table.lists(column.name)


OURS = {
    ("stacks", "class"), ("frames", "space"), ("memcg", "method"), ("memcg", "scope"), ("memcg_walk", "method"),
    ("cgroup_events", "kind"), ("counters", "name"), ("events", "kind"), ("events", "severity"), ("latency", "what"),
    ("latency", "stage"), ("units", "active"), ("units", "sub"), ("units", "result"), ("units", "enabled"),
    ("processes", "state"), ("sources", "name"), ("sources", "state"),
}  # fmt: skip


def test_a_secret_goes_from_every_column_that_is_not_a_word_of_ours() -> None:
    recording = Recording(Node("falcon01", "falcon-boot", "5.4.0-1103-aws", "v1", 4))
    for name, schema in TABLES.items():
        values: dict[str, Any] = {
            "time": 1,
            "int": 1,
            "list": [1],
            "text": "falcon-hunter2",
            "labels": labels(cgroup="/falcon", new="falcon"),
        }
        row = [
            "user"
            if (name, column.name) == ("frames", "space")
            else "ours"
            if (name, column.name) in OURS
            else values[column.kind]
            for column in schema.columns
        ]
        recording[name].add(*row)
    hidden = pseudonymised(recording, names())
    told = repr([hidden.node, *(list(hidden[name].rows()) for name in TABLES)])
    assert "falcon" not in told
    assert "hunter2" not in told
    assert told.count("'ours'") == len(OURS) - 1
    assert hidden.node.kernel == "5.4.0-1103-aws"


def test_who_needs_a_unit_is_still_the_unit_that_is_meant() -> None:
    recording = Recording(Node("falcon01", "", "6.1", "v2", 4))
    for needed_by in ("", "?", "falcon.service hunter.socket"):
        row = {"unit": "hunter.socket", "needed_by": needed_by}
        columns = TABLES["units"].columns
        recording["units"].add(*(row.get(column.name, 0 if column.kind in ("time", "int") else "") for column in columns))
    recording["events"].add(
        0, "unit-exit", "hunter.socket", "warning", "hunter.socket: Main process exited, code=exited, status=1/FAILURE", ()
    )
    known = names()
    hidden = pseudonymised(recording, known)
    told, hunter = hidden["units"].texts("needed_by"), hidden["units"].texts("unit")[0]
    assert told[:2] == ["", "?"]
    assert told[2].split(" ")[1] == hunter != "hunter.socket"
    assert hidden["events"].texts("subject") == [hunter]
    assert hidden["events"].texts("message")[0].startswith(f"{hunter}: Main process exited, code=exited, status=1")
