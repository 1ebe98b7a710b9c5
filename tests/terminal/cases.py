"""The cases: what is typed, and the input it works on. Each is a short session of one or more commands."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from exhume.cli.fleet import SUBCOMMANDS
from exhume.cli.main import COMMANDS
from tests.terminal import inputs


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    typed: tuple[str, ...]
    """Command lines without `exhume`."""
    made: tuple[str, ...] = ()
    """Names in inputs.INPUTS."""
    instead: Mapping[str, Callable[..., object]] = field(default_factory=dict)
    """What stands for a look at a live node, by its dotted name."""

    @property
    def commands(self) -> list[tuple[str, ...]]:
        return [tuple(shlex.split(line)) for line in self.typed]


def _look(recording: Callable[[], object]) -> Mapping[str, Callable[..., object]]:
    return {"exhume.recorder.recorder.record": lambda *_, **__: recording()}


def _soak(recording: Callable[[], object]) -> Mapping[str, Callable[..., object]]:
    return {"exhume.recorder.soak.soak": lambda *_: recording()}


HELP: Final = (
    Case("help", ("--help",)),
    *(Case(f"help-{name}", (f"{name} --help",)) for name in COMMANDS),
    *(Case(f"help-fleet-{name}", (f"fleet {name} --help",)) for name in SUBCOMMANDS),
)

CHECK: Final = (
    Case("check-incident", ("check",), instead=_look(inputs.incident)),
    Case("check-incident-verbose", ("check -v --evidence",), instead=_look(inputs.incident)),
    Case("check-healthy", ("check",), instead=_look(inputs.healthy)),
    Case("check-steal", ("check",), instead=_look(inputs.stolen)),
    Case("check-blind", ("check",), instead=_look(inputs.blind)),
    Case("check-npd", ("check --npd", "check --npd MemoryCgroupLeak", "check --npd Nonsense"), instead=_look(inputs.incident)),
    Case("check-unprivileged", ("check",), instead=_look(inputs.unprivileged)),
    Case(
        "check-host",
        ("check --host host --for 200ms",),
        ("host",),
        {"exhume.recorder.recorder._count_own_wait": lambda *_: None},
    ),
    Case("zombies", ("zombies",), instead={"exhume.recorder.recorder.record_zombies": lambda *_: inputs.zombies()}),
    Case("zombies-host", ("zombies --host host", "zombies purge --dry-run --host host"), ("host",)),
    Case("latency", ("latency late",), ("late",)),
    Case("latency-verbose", ("latency late -v", "latency late --device eth1"), ("late",)),
    Case("latency-not-recorded", ("latency rec",), ("rec",)),
)

RECORDING: Final = (
    Case("info", ("info rec",), ("rec",)),
    Case("info-window", ("info late", "info rec --from +60s --for 5s --cpu 39 --no-idle"), ("rec", "late")),
    Case("diagnose", ("diagnose rec",), ("rec",)),
    Case("diagnose-verbose", ("diagnose rec --last -v --evidence",), ("rec",)),
    Case("diagnose-quiet", ("diagnose quiet", "diagnose rec --from +0s --for 20s"), ("quiet", "rec")),
    Case("diagnose-files", ("diagnose files/dmesg.txt",), ("files",)),
    Case("heat", ("heat rec --from +50s --for 20s",), ("rec",)),
    Case("heat-by-core", ("heat rec --from +50s --for 20s --by core",), ("rec",)),
    Case("heat-long", ("heat rec --cpu 39",), ("rec",)),
    Case("flame", ("flame rec --at +60s --for 5s",), ("rec",)),
    Case("flame-core", ("flame rec --at +60s --for 5s --cpu 39", "flame rec --comm python3 -o out/flame.svg"), ("rec", "out")),
    Case(
        "export",
        (
            "export rec --format folded --from +60s --for 100ms",
            "export rec --format csv --table events",
            "export rec --format pprof -o out/rec.pprof",
        ),
        ("rec", "out"),
    ),
    Case("import", ("import files/dmesg.txt files/stacks.folded -o out/rec", "info out/rec"), ("files", "out")),
    Case("bundle", ("bundle rec -o out/bundle.tar.gz --no-samples",), ("rec", "out")),
    Case("verify-passed", ("verify --before before --after after",), ("before", "after")),
    Case("verify-failed", ("verify --before before --after before",), ("before",)),
    Case("verify-open", ("verify --before before --after short",), ("before", "short")),
)

REMEDY: Final = (
    Case("fix-plan", ("fix ecs.service --host root",), ("root",)),
    Case("fix-plan-verbose", ("fix ecs.service --host root -v",), ("root",)),
    Case("fix-keep", ("fix ecs.service --keep do-nothing --host root",), ("root",)),
    Case("fix-from-report", ("fix --from report.json --host root",), ("report.json", "root")),
    Case(
        "fix-refused",
        ("fix kubelet.service --host root", "fix none.service --host root", "fix ecs.service --apply --host root"),
        ("root",),
    ),
    Case("fix-for-image", ("fix ecs.service --for-image packer --host root", "fix --print-template list"), ("root",)),
    Case(
        "fix-undo-history",
        (
            "history --host root",
            "fix ecs.service --apply --yes --host root",
            "history --host root",
            "uninstall --dry-run --host root",
            "undo --host root",
            "undo --yes --host root",
            "history --host root",
            "undo --yes --host root",
            "fix --resume --host root",
        ),
        ("root",),
    ),
    Case("checklist", ("checklist --host host --dir rec --proof proof.json",), ("host", "rec", "proof.json")),
    Case(
        "uninstall", ("uninstall --host empty", "uninstall --dry-run --host used", "uninstall --host used"), ("empty", "used")
    ),
)

IMAGE: Final = (
    Case("audit", ("audit --root image",), ("image",)),
    Case("audit-all", ("audit --root image --all --policy policy.toml",), ("image", "policy.toml")),
    Case("audit-unit", ("audit --root image ecs.service",), ("image",)),
    Case("gate-image", ("gate --root image",), ("image",)),
    Case("gate-policy", ("gate --root image --policy policy.toml --strict",), ("image", "policy.toml")),
    Case("gate-leak", ("gate", "gate --github --allow-warnings"), instead=_soak(inputs.leaking)),
    Case("gate-quiet", ("gate --for 10m", "gate --for 10m --strict"), instead=_soak(inputs.quiet)),
)

FLEET: Final = (
    Case("fleet-status", ("fleet status fleet.csv", "fleet status fleet --top 5"), ("fleet.csv", "fleet")),
    Case("fleet-cohorts", ("fleet cohorts fleet",), ("fleet",)),
    Case("fleet-cohorts-few", ("fleet cohorts fleet.csv",), ("fleet.csv",)),
    Case("fleet-jobs", ("fleet jobs jobs",), ("jobs",)),
    Case("fleet-correlate", ("fleet correlate few --top 5",), ("few",)),
    Case(
        "fleet-profile", ("fleet profile profiles/sick", "fleet profile profiles/sick --against profiles/well"), ("profiles",)
    ),
    Case("fleet-fix", ("fleet fix fleet.csv ecs.service --exec 'ssh {node} true' --journal out/fix",), ("fleet.csv", "out")),
    Case("lab-list", ("lab list",), instead={"exhume.lab.catalogue.scenarios": inputs.scenarios}),
    Case("lab", ("lab run zombies", "lab fleet", "lab fleet --nodes 12 --days 2 -o out/fleet"), ("out",)),
)

USAGE: Final = (
    Case("wrong-command", ("", "chek", "nonsense", "--nonsense", "help nonsense")),
    Case(
        "wrong-usage",
        (
            "check --nonsense",
            "check --for soon",
            "info",
            "export rec",
            "export rec --format gif",
            "fleet",
            "fleet cohort",
            "node drain",
            "lab",
            "completion tcsh",
            "fix --keep everything",
            "diagnose rec --at noon",
        ),
    ),
)

WRONG: Final = (
    Case(
        "wrong-values",
        (
            "check --for 1ms",
            "latency --threshold 1ms",
            "latency --threads (kube",
            "zombies --follow 1ms",
            "zombies purge --under system.slice",
            "verify --for 3s",
            "diagnose rec --last --at +3s",
            "info rec --from +900s",
            "heat rec --cpu 400",
            "flame rec -o out/flame.png",
            "export rec --format csv --table nonsense",
            "export rec --format folded --table cpu",
            "record --hz 1000000 out/rec",
            "gate --confidence 101",
            "fix --verify ecs.service",
            "undo 20200101-000000 --host root",
            "lab run zombie-starvation",
        ),
        ("rec", "root", "out"),
    ),
    Case(
        "no-such-file",
        (
            "info nowhere",
            "diagnose nowhere",
            "heat nowhere",
            "flame nowhere",
            "view nowhere",
            "latency nowhere",
            "export nowhere --format csv",
            "bundle nowhere -o out/bundle.tar.gz",
            "import nowhere -o out/rec",
            "verify --before nowhere --after nowhere",
            "check --host nowhere",
            "check --config nowhere.toml",
            "zombies --host nowhere",
            "checklist --host nowhere",
            "fix --from nowhere.json",
            "fix ecs.service --host nowhere",
            "history --host nowhere",
            "audit --root nowhere",
            "audit --image nowhere",
            "gate --image nowhere",
            "gate --root image --policy nowhere.toml",
            "fleet status nowhere",
            "fleet cohorts nowhere",
            "fleet profile nowhere",
            "agent --host nowhere",
            "record nowhere/deep/rec",
            "uninstall --host nowhere",
        ),
        ("image", "out"),
    ),
    Case(
        "no-such-format",
        ("info files/noise.bin", "import files/noise.bin -o out/rec", "audit --image files/noise.bin", "fleet status empty"),
        ("files", "out", "empty"),
    ),
    Case("node", ("node status", "node quarantine node-7 --why study --journal out"), ("out",), inputs.CLUSTER),
    Case("node-without-a-cluster", ("node status", "node drain node-7")),
)

CASES: Final = (*HELP, *CHECK, *RECORDING, *REMEDY, *IMAGE, *FLEET, *USAGE, *WRONG)
