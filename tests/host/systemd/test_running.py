"""Odd unit files and restart loops, judged by a systemd that runs them: what it makes of each is what we must have said."""

import time
from collections.abc import Iterator

import pytest

from exhume.host.directory import Directory
from exhume.host.systemd.manager import Defaults
from exhume.host.systemd.start_limit import restart
from exhume.host.systemd.unit_file import merge, parse
from exhume.host.systemd.units import read_units
from tests.host.systemd.booted import listed, show
from tests.systemd import Machine, boot, unavailable

LOOPS = {
    # Three in two seconds, unless it says otherwise; settings of [Service], of [Unit], and whether it goes on for ever.
    "quick": ("RestartSec=300ms", "", False),
    "slow": ("RestartSec=700ms", "", True),
    "exact": ("RestartSec=1s", "StartLimitIntervalSec=2s\nStartLimitBurst=2", True),
    "default-delay": ("", "", False),
    "no-interval": ("RestartSec=100ms", "StartLimitIntervalSec=0", True),
    "no-burst": ("RestartSec=100ms", "StartLimitBurst=0", True),
    "for-ever-counted": ("RestartSec=700ms", "StartLimitIntervalSec=infinity", False),
    "old-name": ("RestartSec=700ms\nStartLimitInterval=60s", "", False),
    "old-burst": ("RestartSec=300ms\nStartLimitBurst=8", "", True),
    "wrong-section": ("RestartSec=700ms\nStartLimitIntervalSec=60s", "", True),
    "bad-value": ("RestartSec=300ms\nRestartSec=soon", "StartLimitIntervalSec=later", False),
    "sleeps-first": ("RestartSec=0\nExecStartPre=/bin/sleep 0.8", "", True),
    "by-signal": ("RestartSec=700ms\nRestart=on-abort\nExecStart=\nExecStart=/bin/sh -c 'kill -SEGV $$$$'", "", True),
    "never": ("RestartSec=infinity", "", False),
    "oneshot-fails": ("Type=oneshot\nRestart=on-failure\nRestartSec=700ms", "", True),
    "oneshot-always": ("Type=oneshot", "", False),
}
ENOUGH = 2
DEADLINE_S = 40

ODD = {
    "plain": "[Unit]\nDescription=a b  c\n",
    "continued": "[Unit]\nDescription=one \\\n# a comment in between\n  ; and another\n  two\\\nthree\n",
    "empty-line-in-continued": "[Unit]\nDescription=one \\\n\n two\nWants=basic.target\n",
    "continued-to-the-end": "[Unit]\nDescription=one \\",
    "even-backslashes": "[Unit]\nDescription=one \\\\\nWants=basic.target\n",
    "bom": "\ufeff[Unit]\nDescription=with a mark\n",
    "carriage-returns": "[Unit]\r\nDescription=of another system\r\nWants=basic.target\r\n",
    "nul": "[Unit]\nDescription=before\0Wants=basic.target\n",
    "no-equals": "[Unit]\nnonsense\nDescription=after nonsense\n= value\n",
    "outside": "Description=outside\n[Unit]\nDescription=inside\n",
    "unknown-section": "[Nothing]\nDescription=nothing\n[Unit]\nDescription=unit\n",
    "spaces": "  [Unit]  \n  Description  =  spaces around  \n",
    "twice": "[Unit]\nDescription=first\n[Service]\nType=simple\n[Unit]\nDescription=second\n",
    "lower-case": "[Unit]\ndescription=lower\nDescription=upper\n[unit]\nDescription=wrong\n",
    "specifiers": "[Unit]\nDescription=%n %N %p %% %j\n",
    "list": "[Unit]\nWants=basic.target \"timers.target\"  'paths.target'\nWants=\nWants=sockets.target bad*name nonsense\n",
    "broken-header": "[Unit]\nDescription=before\n[Service\nType=simple\n[Unit]\nDescription=after\n",
}


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    if why := unavailable():
        pytest.skip(why)
    with boot({f"loop-{name}.service": loop(name) for name in LOOPS}) as booted:
        yield booted


def loop(name: str) -> str:
    service, unit, _ = LOOPS[name]
    limits = f"[Unit]\nStartLimitIntervalSec=2s\nStartLimitBurst=3\n{unit}\n"
    return f"{limits}[Service]\nRestart=always\nExecStart=/bin/false\n{service}\n"


def test_the_arithmetic_says_of_each_loop_whether_it_goes_on() -> None:
    said = {name: restart(merge([parse(loop(name).encode())]), Defaults()) for name in LOOPS}
    assert {name: how.endless for name, how in said.items() if how} == {
        name: endless for name, (_, _, endless) in LOOPS.items()
    }


def test_a_running_systemd_stops_those_loops_and_no_others(machine: Machine) -> None:
    names = {name: f"loop-{name}.service" for name in LOOPS}
    machine.run(["systemctl", "start", "--no-block", *(unit for name, unit in names.items() if name != "oneshot-always")])
    seen: dict[str, bool] = {}
    deadline = time.monotonic() + DEADLINE_S
    while len(seen) < len(names) and time.monotonic() < deadline:
        shown = show(machine, names.values(), "LoadState", "NRestarts", "SubState", "StartLimitBurst")
        for name, unit in names.items():
            state = shown[unit]
            restarts = int(state["NRestarts"])
            # Result= keeps the first failure's; the limit shows in that nothing follows (service_enter_dead(), service.c).
            if state["SubState"] == "failed" or state["LoadState"] == "bad-setting":
                seen[name] = False
            elif restarts > int(state["StartLimitBurst"]) + ENOUGH and name != "never":
                seen.setdefault(name, True)
        if len(seen) == len(names) - 1:
            state = shown[names["never"]]
            assert (state["SubState"], state["NRestarts"]) == ("auto-restart", "0")
            seen["never"] = False
        time.sleep(0.1)
    machine.run(["systemctl", "stop", *names.values()], check=False)
    assert seen == {name: endless for name, (_, _, endless) in LOOPS.items()}


def test_odd_files_are_read_as_the_running_systemd_reads_them(machine: Machine) -> None:
    for name, text in ODD.items():
        machine.write(f"/etc/systemd/system/odd-{name}.service", text)
    machine.run(["systemctl", "daemon-reload"])
    units = {name: f"odd-{name}.service" for name in ODD}
    theirs = show(machine, units.values(), "Description", "Wants", "LoadState")
    with Directory(machine.root) as tree:
        read = read_units(tree)
        for name, unit in units.items():
            sections = read.merged(unit)
            if name == "broken-header":
                assert sections.broken
                assert theirs[unit]["LoadState"] in ("error", "bad-setting")
                continue
            service = next(service for service in read.services() if service.name == unit)
            assert (service.description or unit, set(read.graph.of(unit, "Wants"))) == (
                theirs[unit]["Description"],
                listed(theirs[unit]["Wants"]),
            ), name


RUNS = "[Service]\nExecStart=/bin/true\n"
DROP_INS = {
    "/usr/lib/systemd/system/a-b-c.service": "[Unit]\nDescription=vendor\n[Service]\nExecStart=/bin/true\n",
    "/etc/systemd/system/a-b-c.service.d/20-own.conf": "[Unit]\nDescription=%p 20 own\nWants=own.target\n",
    "/run/systemd/system/a-b-c.service.d/10-run.conf": "[Unit]\nWants=run.target\n",
    "/usr/lib/systemd/system/a-b-c.service.d/30-hidden.conf": "[Unit]\nWants=hidden.target\n",
    "/etc/systemd/system/a-b-.service.d/15-prefix.conf": "[Unit]\nWants=prefix.target\n",
    "/etc/systemd/system/a-.service.d/20-own.conf": "[Unit]\nWants=wrong.target\n",
    "/usr/lib/systemd/system/service.d/05-all.conf": "[Unit]\nWants=every.target\n",
    "/usr/lib/systemd/system/t-u@.service": "[Unit]\nDescription=%p of %i as %I\nWants=w@%i.target v@.target\n" + RUNS,
    "/etc/systemd/system/t-u@.service.d/1.conf": "[Unit]\nWants=template.target\n",
    "/etc/systemd/system/t-u@one-two.service.d/1.conf": "[Unit]\nWants=instance.target\n",
    "/etc/systemd/system/t-.service.d/2.conf": "[Unit]\nWants=prefix.target\n",
    "/etc/systemd/system/other.service.d/40-alias.conf": "[Unit]\nWants=alias.target\n",
    "/usr/lib/systemd/system/tick.timer": "[Timer]\nOnBootSec=1h\nUnit=a-b-c.service\n",
    "/usr/lib/systemd/system/tock.path": "[Path]\nPathExists=/nowhere\n",
    "/usr/lib/systemd/system/plug.socket": "[Socket]\nListenStream=/run/exhume-plug\nService=t-u@x.service\n",
    "/usr/lib/systemd/system/srv-data.mount": "[Mount]\nWhat=none\nWhere=/srv/data\nType=tmpfs\n",
    "/usr/lib/systemd/system/uses.service": "[Unit]\nRequiresMountsFor=/srv/data/x\nUpholds=kept.service\n"
    "BindsTo=other.service\nPartOf=x.target\nRequisite=y.target\nOnFailure=mend@%n.service\n[Service]\nType=dbus\nBusName=a.b\nExecStart=/bin/true\nSlice=q-r.slice\n",
    "/usr/lib/systemd/system/early.service": f"[Unit]\nDefaultDependencies=no\n{RUNS}Sockets=plug.socket\n",
    "/etc/systemd/system/empty.service": "",
}
LINKS = {
    "/etc/systemd/system/other.service": "/usr/lib/systemd/system/a-b-c.service",
    "/etc/systemd/system/a-b-c.service.d/30-hidden.conf": "/dev/null",
    "/etc/systemd/system/multi-user.target.wants/t-u@three.service": "/usr/lib/systemd/system/t-u@.service",
    "/etc/systemd/system/a-b-c.service.wants/linked.service": "/nowhere/linked.service",
    "/etc/systemd/system/a-b-.service.requires/prefix.service": "/nowhere/prefix.service",
    "/usr/lib/systemd/system/a-b-c.service.wants/gone.service": "../gone.service",
    "/etc/systemd/system/a-b-c.service.wants/gone.service": "/dev/null",
    "/etc/systemd/system/hidden.service": "/dev/null",
    "/etc/systemd/system/round.service": "trip.service",
    "/etc/systemd/system/trip.service": "round.service",
    "/etc/systemd/system/misfit.service": "/usr/lib/systemd/system/tick.timer",
    "/etc/systemd/system/u@.service": "/usr/lib/systemd/system/t-u@.service",
    "/etc/systemd/system/afar.service": "/opt/afar.service",
    "/etc/systemd/system/afar-too.service": "/opt/afar.service",
    "/etc/systemd/system/dangling.service": "/opt/nowhere.service",
}
KINDS = ("Requires", "Requisite", "Wants", "BindsTo", "PartOf", "Upholds", "Conflicts", "Triggers", "OnFailure")


def test_drop_ins_links_aliases_and_instances_are_merged_as_the_running_systemd_merges_them(machine: Machine) -> None:
    machine.write("/opt/afar.service", "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n")
    for path, text in DROP_INS.items():
        machine.write(path, text)
    for path, target in LINKS.items():
        machine.run(["mkdir", "-p", path.rpartition("/")[0]])
        machine.run(["ln", "-s", target, path])
    machine.run(["systemctl", "daemon-reload"])
    units = ["a-b-c.service", "t-u@one-two.service", "t-u@three.service", "tick.timer", "tock.path", "plug.socket"]
    units += ["uses.service", "early.service", "srv-data.mount", "system-t\\x2du.slice", "q-r.slice", "afar.service"]
    theirs = show(machine, units, "Id", "Names", "Description", *KINDS)
    with Directory(machine.root) as tree:
        read = read_units(tree)
        for unit in units:
            assert {kind: set(read.graph.of(unit, kind)) or set() for kind in KINDS} == {
                kind: listed(theirs[unit][kind]) for kind in KINDS
            } or unit not in read.graph.forward, unit
        assert read.graph.forward.keys() >= set(units) - {"t-u@one-two.service"}
        for unit in ("a-b-c.service", "t-u@three.service"):
            assert {unit, *read.aliases(unit)} == listed(theirs[unit]["Names"])
        every = {service.name: service for service in read.services()}
        for unit in ("a-b-c.service", "t-u@three.service"):
            assert every[unit].description == theirs[unit]["Description"]
        assert read.canonical("round.service") == "round.service"
        text = machine.run(["systemctl", "list-unit-files", "--no-legend", "--no-pager"]).stdout
        states = {words[0]: words[1] for line in text.splitlines() if (words := line.split())}
        assert {"linked", "bad", "masked", "alias"} <= set(states.values())
        assert read.files() == states
