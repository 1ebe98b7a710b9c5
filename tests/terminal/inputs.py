"""What the commands work on: recordings, nodes and images made of files, fleets. Made once, or anew for each run if changed."""

import csv
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from exhume.cluster.cordon import MARK, TAINT
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.judge import judge
from exhume.diagnosis.report import as_json
from exhume.lab.catalogue import scenarios as _scenarios
from exhume.lab.fleet import write as write_fleet
from exhume.lab.fleet_facts import Settings
from exhume.lab.scenario import Scenario
from exhume.recorder.latency_rows import Key
from exhume.recording.recording import Recording
from exhume.recording.source_state import Failed, Note, SourceState
from exhume.remedy.proof import as_json as proof_as_json
from exhume.remedy.proof import prove
from exhume.sources.latency.stalls import Holder
from tests.diagnosis.findings import made
from tests.diagnosis.findings.made import stall
from tests.diagnosis.findings.test_leak import walked
from tests.diagnosis.test_judge import incident as incident_recording
from tests.diagnosis.test_judge import zombies as dying
from tests.diagnosis.test_latency import counted, histogram, recording
from tests.image.incident import incident as incident_image
from tests.image.test_gate import leak, soaked
from tests.incidents.quiet import healthy_and_busy
from tests.incidents.rivals import stolen_time
from tests.remedy.made_proof import Made, node
from tests.render.told import Names, told, write
from tests.trees import Tree
from tests.trees import incident as incident_tree

_SICK: Final = Made(1, seconds=240, cpus=5)
_CURED: Final = replace(_SICK, seed=2, seconds=300, leak=0, walk_s=0, zombies=60)
_NOON: Final = datetime(2026, 1, 20, 12)
_LIB, _WANTS = "usr/lib/systemd/system", "etc/systemd/system/multi-user.target.wants"


def _late(path: Path) -> None:
    """A recording with late polls and who was in their way."""
    it = recording()
    it.add_source(0, "latency-reclaim", SourceState.off(Failed("this kernel has no tracepoint of the kind")))
    eth0 = Key("napi", "wait", 1, "eth0")
    counted(it, 1, {eth0: histogram(*[3] * 900, *[40] * 99, 700), eth0._replace(stage="run"): histogram(*[9] * 1000)})
    counted(it, 1, {Key("runqueue", "wait", core): histogram(*[2] * (10 + core)) for core in range(5)})
    counted(it, 4, {eth0._replace(stage="stall"): histogram(690_000)})
    stall(it, 4, 690, netns=0)
    stall(it, 6, 80, holder=Holder(44, 45, "burn"), stack=(), core=2, device="", what="softirq", cgroup="")
    stall(it, 7, 70, holder=None, device="eth1", netns=7)
    stall(it, 8, 60, holder=Holder(0, 0, "swapper/3"), core=3, device="eth1", netns=7)
    write(path, it)


def _root(path: Path) -> None:
    """The root of a node in which nothing runs: a unit to be fixed, one that is protected, and no journal yet."""
    tree = Tree(path)
    tree.write(f"{_LIB}/ecs.service", "[Service]\nExecStart=/usr/libexec/ecs\nRestart=always\nRestartSec=10s\n")
    tree.write(f"{_LIB}/kubelet.service", "[Service]\nExecStart=/usr/bin/kubelet\n")
    tree.write("etc/hostname", "node-7\n")
    (path / _WANTS).mkdir(parents=True)
    (path / _WANTS / "ecs.service").symlink_to(f"/{_LIB}/ecs.service")
    (path / "var/lib").mkdir(parents=True)


def _used(path: Path) -> None:
    """A node on which exhume was used."""
    tree = Tree(path)
    tree.write("var/lib/exhume/proof.json", "{}\n")
    tree.write("etc/exhume/exhume.toml", "[agent]\n")


def _inventory(path: Path) -> None:
    path.write_text(
        "node,zone,zombies,live,leak_per_day,resets,uptime_s,health\n"
        "well,a,4,240,0,0,999999,healthy\n"
        "leaks,a,900,240,8640,0,9000,healthy\n"
        "sick-1,b,68680,240,8640,5,691200,critical\n"
        "sick-2,b,90000,240,8640,9,891200,critical\n"
        "silent,b,,,,,,\n"
    )


def _jobs(path: Path) -> None:
    """Two nodes over six hours, and the jobs that died on the one that was reset."""
    path.mkdir()
    jobs = [(f"died-{i}", "a", _NOON, _NOON + timedelta(minutes=30 * i + 33), "failed", 8, "ActorDiedError") for i in range(10)]
    jobs += [(f"fine-{i}", "b", _NOON, _NOON + timedelta(minutes=30 * i + 33), "succeeded", 8, "") for i in range(10)]
    resets = {("a", 30 * i + 30) for i in range(10)}
    minutes = [
        (node, _NOON + timedelta(minutes=i), 100, 60_000 if node == "a" else 0, int((node, i) in resets), 0, 0)
        for node in ("a", "b")
        for i in range(360)
    ]
    _csv(path / "jobs.csv", ("job", "node", "started", "ended", "outcome", "gpus", "error"), jobs)
    _csv(path / "minutes.csv", ("node", "time", "live", "dying", "resets", "stall_ms", "saturated_ms"), minutes)


def _csv(path: Path, header: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def _profiles(path: Path) -> None:
    for name, held in (("sick/one", ((5.0, 11.0),)), ("sick/two", ((2.0, 9.0),)), ("well/three", ())):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        write(path / name, told(20, held, cpus=4, core=1, sampled=4, names=Names(host=path.joinpath(name).name)))


def _files(path: Path) -> None:
    """What other tools wrote."""
    path.mkdir()
    (path / "dmesg.txt").write_text(
        "[  100.000000] ena 0000:20:03.0 eth0: TX q 5 is paused for too long (threshold 5000000). "
        "Time since last napi 6596000 usec. napi scheduled: 1\n"
        "[  101.500000] ena 0000:20:03.0: Device reset completed successfully, Driver info: ENA v2.11.0g\n"
    )
    (path / "stacks.folded").write_text("kubelet;vfs_read;memcg_stat_show 90\npython3;main;train 10\n")
    (path / "noise.bin").write_bytes(bytes(range(256)) * 4)


def _policy(path: Path) -> None:
    path.write_text(
        '[agents."kubelet.service"]\nowner = "platform"\npurpose = "runs the pods"\nreview = 2027-06-30\n\n'
        '[agents."ecs.service"]\nowner = "infra"\npurpose = "ECS"\nreview = 2025-06-30\nimages = ["ecs-*"]\n'
    )


def _host(path: Path) -> None:
    """The host of the incident without a kernel log, whose lines are so many seconds old."""
    incident_tree(path).write("dev/kmsg", "")


def incident() -> Recording:
    """A look at the node of the incident."""
    return incident_recording()


def healthy() -> Recording:
    return healthy_and_busy().recording


def stolen() -> Recording:
    return stolen_time().recording


def blind() -> Recording:
    """A look by which nothing was seen."""
    return _without(made.recording(on=()))


def unprivileged() -> Recording:
    """The incident as a user sees it who is not root."""
    seen = _without(made.recording(cpus=8, on=("cpu", "memcg")))
    made.cores(seen, 3.0, {2: [(0.0, 3.0, "system")]})
    dying(seen)
    return seen


def _without(seen: Recording) -> Recording:
    for name, why in (
        ("kernel-log", "/dev/kmsg is not readable: run as root, or let everyone read it with sysctl kernel.dmesg_restrict=0"),
        ("latency-stacks", "stack samples cannot be read: it takes root or CAP_PERFMON"),
        ("units", "systemd is not running here"),
    ):
        seen.add_source(0, name, SourceState.off(Failed(why)))
    return seen


def zombies() -> Recording:
    found = walked({"/system.slice/ecs.service": 68_000, "/kubepods/burstable/pod<id>/<id>": 436, "/x": 4}, unit="ecs.service")
    found.add_source(0, "zombies", SourceState.read((Note("named by a walk of the kernel's own tree"),)))
    return found


def leaking() -> Recording:
    """Ten minutes of a test instance on which a unit leaks."""
    seen = soaked(601, dying=5_000)
    leak(seen, 1, 600, 10)
    return seen


def quiet() -> Recording:
    return soaked(601)


def _node(name: str, token: str = "", taint: bool = False, condition: str = "", message: str = "") -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True"}]
    conditions += [{"type": condition, "status": "True", "message": message}] if condition else []
    marks = {MARK: json.dumps({"token": token, "time_s": 1_769_800_000, "boot_id": ""})} if token else {}
    return {
        "metadata": {"name": name, "annotations": marks},
        "spec": {"unschedulable": bool(token), "taints": [{"key": TAINT, "value": "study"}] if taint else []},
        "status": {"conditions": conditions},
    }


CLUSTER: Final[Mapping[str, Callable[..., object]]] = {
    "exhume.cluster.client.connect": lambda *_: nullcontext(),
    "exhume.cluster.cordon.read_node": lambda _, name: _node(name),
    "exhume.cluster.cordon.find_nodes": lambda _: [
        _node("ip-10-1-7-7", "20260130-081500", taint=True),
        _node("ip-10-1-7-8", "20260130-180000"),
        _node("ip-10-1-7-9", condition="MemoryCgroupLeak", message="68,440 zombie memory cgroups against 240 live"),
    ],
}
"""A cluster: a node in quarantine, one that is drained, one of which the agent reports a leak. And how they are asked for."""


def scenarios() -> tuple[Scenario, ...]:
    """Of the lab, as on a machine that has all they need."""
    return tuple(replace(one, missing=lambda: "") for one in _scenarios())


@dataclass(frozen=True, slots=True)
class Input:
    make: Callable[[Path], object]
    changed: bool = False
    """Whether commands change it, so that each run needs a new one."""


INPUTS: Final = {
    "rec": Input(lambda path: write(path, told(cpus=48))),
    "quiet": Input(lambda path: write(path, healthy_and_busy().recording)),
    "late": Input(_late),
    "before": Input(lambda path: write(path, node(_SICK))),
    "after": Input(lambda path: write(path, node(_CURED))),
    "short": Input(lambda path: write(path, node(replace(_CURED, seconds=40)))),
    "proof.json": Input(lambda path: path.write_text(json.dumps(proof_as_json(prove(None, node(_CURED), Thresholds()))))),
    "report.json": Input(lambda path: path.write_text(json.dumps(as_json(judge(incident_recording(), Thresholds()))))),
    "host": Input(_host),
    "root": Input(_root, changed=True),
    "image": Input(incident_image),
    "used": Input(_used, changed=True),
    "empty": Input(lambda path: path.mkdir()),
    "fleet.csv": Input(_inventory),
    "fleet": Input(lambda path: write_fleet(path, Settings(40, 8, 4, "agent"))),
    "few": Input(lambda path: write_fleet(path, Settings(6, 3, 4, "agent"))),
    "jobs": Input(_jobs),
    "profiles": Input(_profiles),
    "files": Input(_files),
    "policy.toml": Input(_policy),
    "out": Input(lambda path: path.mkdir(), changed=True),
}


def provide(names: tuple[str, ...], directory: Path) -> None:
    """These inputs in a directory: new ones of those that commands change."""
    for name in names:
        path, one = directory / name, INPUTS[name]
        if one.changed and path.exists():
            shutil.rmtree(path)
        if not path.exists():
            one.make(path)
