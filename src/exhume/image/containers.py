"""Containers that a runtime starts again by itself, from the runtimes' own files: docker, podman, containerd with nerdctl.

Nothing is asked of a daemon, so it works on an image at rest. Docker's files are JSON; containerd's are in a bbolt database,
podman's in one or in SQLite. Quadlet files, which are units that say "run this container", are in quadlet.py.
"""

import re
from collections.abc import Iterator
from typing import Any

from exhume.host.commands import shown
from exhume.host.programs import paths
from exhume.host.service import Restart, Service
from exhume.host.tree import Tree, complain
from exhume.image import quadlet
from exhume.image.container_stores import CONTAINERD, MOST, containerd, podman
from exhume.image.document import Malformed, at, from_json, string, words
from exhume.image.sysv import UNITS
from exhume.text import decode, from_path, printable

OWN_CGROUP = "it has a cgroup of its own, and a new one with every restart"


def read(tree: Tree) -> list[Service]:
    found = [*_docker(tree), *_podman(tree), *quadlet.read(tree), *_containerd(tree)]
    return found[:MOST]


def _docker(tree: Tree) -> Iterator[Service]:
    settings = _json(tree, "/etc/docker/daemon.json")
    root = string(at(settings, "data-root")) or string(at(settings, "graph")) or "/var/lib/docker"
    absent = "" if any(tree.entry(path) for path in paths("dockerd")) else "no dockerd is installed on this image"
    notes = ("live-restore is on: it goes on while dockerd is stopped",) if at(settings, "live-restore") is True else ()
    place = f"{root.rstrip('/')}/containers"
    for name in tree.names(place)[:MOST]:
        path = f"{place}/{name}/config.v2.json"
        config = _json(tree, path)
        if not isinstance(config, dict):
            continue
        policy = at(_json(tree, f"{place}/{name}/hostconfig.json"), "RestartPolicy")
        rule = string(at(policy, "Name")) or "no"
        retries = at(policy, "MaximumRetryCount")
        stopped = at(config, "HasBeenManuallyStopped") is True
        running = at(config, "State", "Running") is True
        yield _service(
            name=string(at(config, "Name")).lstrip("/") or name,
            path=path,
            image=string(at(config, "Config", "Image")),
            command=[string(at(config, "Path")), *words(at(config, "Args"))],
            restart=docker_restart(rule, retries if isinstance(retries, int) else 0),
            starter="docker.service",
            why=absent or _docker_hindrance(rule, stopped, running, failed=at(config, "State", "ExitCode") != 0),
            notes=notes,
        )


def _docker_hindrance(rule: str, stopped: bool, running: bool, failed: bool) -> str:
    """What keeps dockerd from starting it when it comes up: ShouldRestart() of restartmanager.go in moby."""
    if rule == "always" or (rule == "unless-stopped" and not stopped):
        return ""
    if rule == "on-failure" and not stopped and (running or failed):
        return ""
    if rule == "unless-stopped":
        return "somebody stopped it, and its policy is unless-stopped"
    if rule == "on-failure":
        return "it ended well or was stopped, and its policy is on-failure"
    return f"its restart policy is {printable(rule, 40)}"


def docker_restart(rule: str, retries: int) -> Restart:
    """The wait is 100 ms, then twice as long each time up to a minute; 10 s of running begin it anew (restartmanager.go)."""
    if rule == "on-failure" and retries > 0:
        return Restart(rule, 0.1, retries, 0.0, False, f"Docker gives up after {retries} restarts.")
    if rule in ("always", "unless-stopped", "on-failure"):
        why = "Docker's back-off doubles from 100 ms to 1 min and never ends: at least 1,440 restarts a day."
        return Restart(rule, 0.1, 0, 0.0, True, why)
    return Restart(rule, 0.0, 0, 0.0, False, "Docker does not start it again.")


def _podman(tree: Tree) -> Iterator[Service]:
    absent = "" if any(tree.entry(path) for path in paths("podman")) else "no podman is installed on this image"
    boot = _wanted(tree, "podman-restart.service")
    # Which policies it starts is in its command, and has become more with time.
    unit = next((text for place in UNITS if (text := tree.read(f"{place}/podman-restart.service"))), b"")
    started = {decode(policy) for policy in re.findall(rb"restart-policy=([a-z-]+)", unit)} or {"always"}
    for path, text in podman(tree):
        try:
            config = from_json(text)
        except Malformed as error:
            complain(tree.troubles, f"A container in {printable(from_path(path))} cannot be read: {error}.")
            continue
        name = string(at(config, "name"))
        if not name:
            continue
        rule = string(at(config, "restart_policy")) or "no"
        retries = at(config, "restart_retries")
        why = absent
        if not why and rule not in started:
            why = f"podman starts nothing with the policy {printable(rule, 40)} at boot"
        elif not why and not boot:
            why = "podman-restart.service is not enabled, so nothing starts it at boot"
        yield _service(
            name=name,
            path=path,
            image=string(at(config, "rootfsImageName")),
            command=[*words(at(config, "entrypoint")), *words(at(config, "command"))],
            restart=podman_restart(rule, retries if isinstance(retries, int) else 0),
            starter="podman-restart.service",
            why=why,
        )


def podman_restart(rule: str, retries: int) -> Restart:
    """podman-run(1), --restart; handleRestartPolicy() of libpod starts it again at once, without a back-off."""
    if rule == "on-failure" and retries > 0:
        return Restart(rule, 0.0, retries, 0.0, False, f"Podman gives up after {retries} restarts.")
    if rule in ("always", "unless-stopped", "on-failure"):
        return Restart(rule, 0.0, 0, 0.0, True, "Podman starts it again at once, without a back-off, and never gives up.")
    return Restart(rule, 0.0, 0, 0.0, False, "Podman does not start it again.")


def _containerd(tree: Tree) -> Iterator[Service]:
    """Labels of containerd's restart monitor (runtime/restart/restart.go), which looks every 10 s; nerdctl sets them."""
    absent = "" if any(tree.entry(path) for path in paths("containerd")) else "no containerd is installed on this image"
    for name, image, labels in containerd(tree):
        wanted = labels.get("containerd.io/restart.status", "")
        if not wanted:
            continue  # not the monitor's: Kubernetes' containers, and docker's
        rule = labels.get("containerd.io/restart.policy", "") or "always"
        why = absent
        if not why and wanted != "running":
            why = f"it is to be {printable(wanted, 40)}, by its label containerd.io/restart.status"
        elif not why and rule == "unless-stopped" and labels.get("containerd.io/restart.explicitly-stopped") == "true":
            why = "somebody stopped it, and its policy is unless-stopped"
        yield _service(
            name=labels.get("nerdctl/name") or name,
            path=CONTAINERD,
            image=image,
            command=[],
            restart=containerd_restart(rule),
            starter="containerd.service",
            why=why,
        )


def containerd_restart(rule: str) -> Restart:
    name, _, count = rule.partition(":")
    if name == "on-failure" and count.isascii() and count.isdigit() and int(count[:9]) > 0:
        return Restart(
            rule, 10.0, int(count[:9]), 0.0, False, f"The restart monitor of containerd gives up after {count[:9]} restarts."
        )
    if name in ("always", "unless-stopped", "on-failure"):
        why = "The restart monitor of containerd looks every 10 s and never gives up: up to 8,640 restarts a day."
        return Restart(rule, 10.0, 0, 0.0, True, why)
    return Restart(rule, 0.0, 0, 0.0, False, "The restart monitor of containerd does not start it again.")


def _json(tree: Tree, path: str) -> Any:
    text = tree.read(path)
    if text is None:
        return None
    try:
        return from_json(text)
    except Malformed as why:
        complain(tree.troubles, f"{printable(from_path(path))} cannot be read: {why}.")
        return None


def _wanted(tree: Tree, unit: str) -> bool:
    places = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system", "/run/systemd/system")
    targets = ("default.target", "multi-user.target", "graphical.target")
    return any(tree.entry(f"{place}/{target}.wants/{unit}", follow=False) for place in places for target in targets)


def _service(
    *,
    name: str,
    path: str,
    image: str,
    command: list[str],
    restart: Restart,
    starter: str,
    why: str,
    notes: tuple[str, ...] = (),
) -> Service:
    line = shown(" ".join(word for word in command if word))
    return Service(
        name=name[:500],
        kind="container",
        state="disabled" if why else "enabled",
        starts=not why,
        path=path,
        description=image[:1000],
        command=(line,) if line else (),
        pulled_by=() if why else (starter,),
        restart=restart,
        cgroups=OWN_CGROUP,
        conditions=(why,) if why else (),
        notes=notes,
    )
