"""What leaves the node: host services and allowed namespaces by name, everybody else as a number."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.agent.push_build import Order, build, encoded, order
from exhume.agent.push_profile import OTHER, TOP, Rows, Tenant, rows
from exhume.agent.spool import Kind, Spool
from exhume.exports.subject import Subject
from exhume.host.owners import PERHAPS, Owner
from tests.agent.push_reading import Read, otlp, pprof
from tests.examples import examples
from tests.render.made import BEGIN, HZ, NODE, REAL, SECOND, Ran, idle, node_at, recorded, write

UID = "12345678-90ab-cdef-1234-567890abcdef"
OTHERS = "ffffffff-90ab-cdef-1234-567890abcdef"
ID = "0123456789abcdef" * 4
POD = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice/cri-containerd-{ID}.scope"
OTHER_POD = f"/kubepods/besteffort/pod{OTHERS}/{'fedcba9876543210' * 4}"
KUBELET = "/system.slice/kubelet.service"
WALK = "kubelet:main k:read k:mem_cgroup_nr_lru_pages"
SUBJECT = Subject(NODE, HZ, "cpu-clock", BEGIN, BEGIN + 10 * SECOND, REAL)
TRAINING = {UID: Tenant("training", "resnet-0", "trainer"), OTHERS: Tenant("secret", "agent-7", "x")}


def made(*ran: Ran, namespaces: tuple[str, ...] = (), known: dict[str, Tenant] | None = None) -> Rows:
    found = TRAINING if known is None else known
    return rows(*recorded(*ran), namespaces, lambda whose: found.get(whose.pod, Tenant()))


def an_order(tmp_path: Path, kind: Kind = "pprof", **other: object) -> Order:
    fields: dict[str, object] = {
        "recording": str(tmp_path / "rec"), "spool": str(tmp_path / "rec.spool"), "budget_bytes": 1 << 20, "kind": kind,
        "name": "exhume", "start": BEGIN, "end": BEGIN + 12 * SECOND, "host": str(tmp_path / "host"), "namespaces": (),
        "labels": (("zone", "b"),),
    }  # fmt: skip
    return order(json.dumps({**fields, **other}))


def pushed(found: Rows, tmp_path: Path) -> Read:
    """As both encodings have it, which say the same."""
    one = pprof(encoded(an_order(tmp_path), found, SUBJECT))
    other = otlp(encoded(an_order(tmp_path, "otlp"), found, SUBJECT))
    common = {("node", "node-7"), ("zone", "b")}
    assert {(labels - common, stack): count for (labels, stack), count in one.rows.items()} == other.read.rows
    assert all(common <= labels for labels, _ in one.rows)
    assert other.resource == {"service.name": "exhume", "host.name": "node-7", "zone": "b"}
    assert (other.start_real, other.duration, other.period) == (REAL, 10 * SECOND, SECOND // HZ)
    return Read(other.read.rows, one.texts + other.read.texts)


def test_a_host_service_has_its_unit_and_its_process_before_its_stack(tmp_path: Path) -> None:
    found = pushed(made(Ran(3, "kubelet", WALK, 300, cgroup=KUBELET), Ran(1, "kubelet", WALK, 20, cgroup=KUBELET)), tmp_path)
    assert found.rows == {
        (frozenset({("unit", "kubelet.service")}), ("kubelet", "main", "read", "mem_cgroup_nr_lru_pages")): 320
    }


def test_idle_cores_are_left_out_and_interrupts_of_them_are_not(tmp_path: Path) -> None:
    softirq = Ran(0, "swapper", "somebody:main k:do_idle k:handle_softirqs k:net_rx_action", 5, "softirq", 0, "")
    outside = Ran(1, "swapper", "their:main k:their_syscall", 3, "system", 0, "")  # in a PID namespace of our own
    found = made(idle(0, 1000), softirq, outside)
    assert (found.samples, found.withheld) == (8, 3)
    read = pushed(found, tmp_path)
    assert read.stacks == {("swapper", "do_idle", "handle_softirqs", "net_rx_action"): 5, ("(owner not known)",): 3}
    assert not [text for text in read.texts if "their" in text or "somebody" in text]


def test_pods_of_other_namespaces_are_one_frame_with_nothing_of_theirs(tmp_path: Path) -> None:
    ran = (
        Ran(0, "resnet", "trainer:forward", 10, "user", 10, POD),
        Ran(1, "spy", "spyware:listen k:spy_syscall", 7, "system", 11, OTHER_POD),
        Ran(2, "kubelet", WALK, 3, "system", 12, KUBELET),
    )
    found = made(*ran, namespaces=("training",))
    assert (found.samples, found.withheld) == (20, 7)
    read = pushed(found, tmp_path)
    trainer = {("namespace", "training"), ("pod", "resnet-0"), ("container", "trainer")}
    assert read.rows == {
        (frozenset(trainer), ("resnet", "forward")): 10,
        (frozenset(), ("(pod not allowed)",)): 7,
        (frozenset({("unit", "kubelet.service")}), ("kubelet", "main", "read", "mem_cgroup_nr_lru_pages")): 3,
    }
    told = " ".join(read.texts)
    assert not [word for word in ("spy", "listen", "secret", "agent-7", OTHERS, "fedcba") if word in told]
    assert "mem_cgroup_nr_lru_pages" in told


def test_without_a_list_no_pod_leaves_and_nobody_is_asked_about() -> None:
    def never(_: Owner) -> Tenant:
        raise AssertionError("nobody is to be looked up")

    found = rows(*recorded(Ran(0, "resnet", "trainer:forward", 10, "user", 10, POD)), (), never)
    assert (found.samples, found.withheld, [frame.name for frame in found.frames]) == (10, 10, ["(pod not allowed)"])


def test_who_may_have_been_in_a_container_is_hidden_unless_everybody_may_leave(tmp_path: Path) -> None:
    """What a runtime started and what ended at once has the runtime's own cgroup, as far as anybody knows."""
    runtime = "/system.slice/containerd.service"
    ran = (
        Ran(0, "containerd", "containerd:main", 4, "user", 10, runtime),
        Ran(1, "spy", "k:spy_syscall", 7, "system", 11, runtime),
    )
    tally, dictionaries = recorded(*ran)
    (spy,) = (row for row in dictionaries["threads"].rows() if row["comm"] == "spy")
    dictionaries["threads"].add(*(spy | {"container": PERHAPS}).values())
    for namespaces in ((), ("training",), ("",)):
        found = rows(tally, dictionaries, namespaces, lambda _: Tenant("training", "resnet-0", "trainer"))
        assert (found.samples, found.withheld) == (11, 7)
        read = pushed(found, tmp_path)
        unit = frozenset({("unit", "containerd.service")})
        assert read.rows == {(unit, ("containerd", "main")): 4, (frozenset(), ("(owner not known)",)): 7}
        assert "spy" not in " ".join(read.texts)
    everybody = rows(tally, dictionaries, ("*",), lambda _: Tenant())
    assert (everybody.samples, everybody.withheld) == (11, 0)
    assert "container" not in {key for key, _ in pushed(everybody, tmp_path).labels}


def test_a_namespace_that_is_not_known_is_not_allowed() -> None:
    ran = Ran(0, "resnet", "trainer:forward", 10, "user", 10, POD)
    assert made(ran, namespaces=("training", ""), known={}).withheld == 10
    assert made(ran, namespaces=("train",)).withheld == 10
    assert made(ran, namespaces=("training",)).withheld == 0


def test_a_container_without_a_pod_is_somebodys_too() -> None:
    ran = Ran(0, "redis", "redis:loop", 4, "user", 10, f"/docker/{ID}")
    assert made(ran, namespaces=("training",)).withheld == 4
    (row,) = made(ran, namespaces=("*",)).rows
    assert row.labels == (("container", ID[:12]),)


def test_a_thread_of_which_nobody_knows_whose_it_is_stays_behind(tmp_path: Path) -> None:
    found = made(Ran(0, "short", "short:lived k:exit", 4, cgroup=""), namespaces=("*",))
    assert found.withheld == 4
    assert pushed(found, tmp_path).stacks == {("(owner not known)",): 4}


def test_stacks_that_were_not_taken_are_called_user_space(tmp_path: Path) -> None:
    found = pushed(made(Ran(0, "dockerd", "", 4, "user", cgroup="/system.slice/docker.service")), tmp_path)
    assert found.stacks == {("dockerd", "(user space)"): 4}


def test_labels_are_bounded(tmp_path: Path) -> None:
    units = [Ran(0, "x", "x:main", 100 - at, "user", 100 + at, f"/system.slice/u{at}.service") for at in range(60)]
    found = pushed(made(*units), tmp_path)
    told = {value for key, value in found.labels if key == "unit"}
    assert told == {f"u{at}.service" for at in range(TOP)} | {OTHER}
    assert sum(found.rows.values()) == sum(ran.samples for ran in units)


NAMES = st.text(max_size=12)
PATHS = st.sampled_from([KUBELET, POD, OTHER_POD, "", "/", "/system.slice/a\x1b[31m.service", f"/docker/{ID}"])


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(NAMES, st.integers(0, 30), PATHS, st.sampled_from(["user", "system", "idle"])), max_size=8))
def test_hostile_names_are_encoded_and_totals_stay(rest: list[tuple[str, int, str, str]]) -> None:
    ran = [Ran(0, comm, "a:b k:c", count, kind, 1000 + at, path) for at, (comm, count, path, kind) in enumerate(rest)]
    found = made(*ran, namespaces=("training",))
    wanted = sum(one.samples for one in ran if one.kind != "idle")
    assert found.samples == wanted
    for kind in ("pprof", "otlp"):
        data = encoded(an_order(Path("/nowhere"), kind), found, SUBJECT)
        read = pprof(data) if kind == "pprof" else otlp(data).read
        assert sum(read.rows.values()) == wanted


def test_the_same_rows_have_the_same_identity_and_others_another(tmp_path: Path) -> None:
    asked = an_order(tmp_path, "otlp")
    one, same = (otlp(encoded(asked, made(Ran(0, "x", "x:main", 5, cgroup="/")), SUBJECT)) for _ in range(2))
    other = otlp(encoded(asked, made(Ran(0, "x", "x:main", 6, cgroup="/")), SUBJECT))
    assert len(one.identity) == 16
    assert one.identity == same.identity != other.identity


# From a recording on disk


def pods(second: int, core: int, tick: int) -> Ran:
    if core == 2:
        return Ran(core, "resnet", "trainer:forward", 1, "user", 500, POD)
    if core == 0:
        return Ran(core, "spy", "spyware:listen", 1, "user", 600, OTHER_POD)
    return node_at(second, core, tick)


def with_pods(tmp_path: Path) -> None:
    """The kubelet's own directories say which namespace a pod is of (BuildPodLogsDirectory)."""
    write(tmp_path / "rec", does=pods)
    for pod in (f"training_resnet-0_{UID}", f"secret_agent-7_{OTHERS}"):
        (tmp_path / "host/var/log/pods" / pod).mkdir(parents=True)
    Spool(str(tmp_path / "rec.spool"), 1 << 20).prepare()


def test_a_profile_of_a_window_goes_into_the_spool(tmp_path: Path) -> None:
    with_pods(tmp_path)
    asked = an_order(tmp_path, start=BEGIN + 5 * SECOND, end=BEGIN + 8 * SECOND, namespaces=["training"])
    done = build(asked)
    parcel = Spool(asked.spool, 1 << 20).take(done.file)
    assert parcel is not None
    assert (parcel.start_real, parcel.end_real, parcel.hz) == (REAL + 5 * SECOND, REAL + 8 * SECOND, HZ)
    assert parcel.labels == (("node", "node-7"), ("zone", "b"))
    assert pprof(parcel.body).stacks == {
        ("resnet", "forward"): 300,
        ("(pod not allowed)",): 300,
        ("kubelet", "main", "read", "mem_cgroup_nr_lru_pages"): 300,
        ("sshd", "main"): 60,
    }
    assert (done.samples, done.withheld, done.bytes) == (960, 300, len(parcel.body))


def test_a_window_without_anything_makes_no_parcel(tmp_path: Path) -> None:
    write(tmp_path / "rec", does=lambda second, core, tick: idle(core, 1))
    Spool(str(tmp_path / "rec.spool"), 1 << 20).prepare()
    assert build(an_order(tmp_path)).file == ""
    assert build(an_order(tmp_path, start=BEGIN + 100 * SECOND, end=BEGIN + 200 * SECOND)).file == ""


def test_the_child_says_what_it_made_and_what_it_could_not(tmp_path: Path) -> None:
    with_pods(tmp_path)

    def child(asked: Order) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "exhume.agent.push_build", asked.text()],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    done = child(an_order(tmp_path))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["file"] in os.listdir(tmp_path / "rec.spool")
    too_large = child(an_order(tmp_path, budget_bytes=10))
    assert (too_large.returncode, too_large.stdout) == (3, "")
    assert "raise agent.push.spool_mib" in too_large.stderr
    missing = child(an_order(tmp_path, recording=str(tmp_path / "none")))
    assert missing.returncode == 3
    assert "Traceback" not in missing.stderr


@pytest.mark.ci
@pytest.mark.skipif(shutil.which("go") is None, reason="needs go")
def test_gos_pprof_reads_it_with_its_labels(tmp_path: Path) -> None:
    with_pods(tmp_path)
    asked = an_order(tmp_path, namespaces=["training"])
    parcel = Spool(asked.spool, 1 << 20).take(build(asked).file)
    assert parcel is not None
    file = tmp_path / "cpu.pb.gz"
    file.write_bytes(parcel.body)

    def go(what: str) -> str:
        return subprocess.run(
            ["go", "tool", "pprof", what, "-sample_index=samples", "-nodefraction=0", str(file)],
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, "GOTOOLCHAIN": "local", "PPROF_TMPDIR": str(tmp_path)},
            check=True,
        ).stdout

    top, tags = go("-top"), go("-tags")
    assert "(pod not allowed)" in top
    assert "mem_cgroup_nr_lru_pages" in top
    for words in ("kubelet.service", "node-7", "training", "resnet-0"):
        assert words in tags
    assert "secret" not in top + tags
