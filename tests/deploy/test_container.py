"""exhume in a container, as the chart and `kubectl debug` run it: runc, its capabilities, its mounts, its seccomp profile.

The everyday tests take this machine's own Python as the container's root; the image itself is built and run in the long tier.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from exhume.agent.privileges import HOST, Mount, capabilities, mounts
from tests.deploy import image, oci

TOP = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.ci,
    pytest.mark.usefixtures("many_zombies", "tracefs"),
    pytest.mark.skipif(bool(oci.unavailable()), reason=oci.unavailable() or "-"),
]

NEEDED = capabilities(())


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An empty root, into which this machine's programs are mounted."""
    return str(tmp_path_factory.mktemp("root"))


def pod(root: str, kept: tuple[str, ...] = NEEDED, calls: tuple[str, ...] = oci.NEW_CALLS, **more: object) -> oci.Pod:
    profile = None
    if oci.PROFILE.exists():
        profile = oci.with_calls(oci.profile(kept), calls) if calls else oci.profile(kept)
    host = tuple(one for one in mounts(()) if os.path.exists(one.path))
    environment = (f"PYTHONPATH={TOP}/src:{TOP}",)
    return oci.Pod(root, kept, (*oci.programs(TOP), *host), seccomp=profile, environment=environment, **more)  # type: ignore[arg-type]


def seen(made: oci.Pod) -> dict[str, list[str]]:
    done = oci.run(made, [sys.executable, "-m", "tests.deploy.seen", HOST])
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def off(found: dict[str, list[str]]) -> set[str]:
    return {
        name for name, said in found.items() if any(": off" in one or "not named" in one or "weaker" in one for one in said)
    }


def test_with_the_charts_capabilities_and_mounts_every_source_is_on(root: str) -> None:
    found = seen(pod(root))
    assert off(found) <= {"units", "journal"}  # whether there is a systemd depends on the machine
    assert found["kernel-log"] == ["kernel-log: on"]  # by syslog(2): the device is not allowed
    assert found["latency"][-1] == "paths: /"


@pytest.mark.ci
@pytest.mark.skipif(
    not oci.PROFILE.exists(), reason="needs a runtime's seccomp profile (Debian: golang-github-containers-common)"
)
def test_an_older_profile_needs_sys_admin_and_the_sources_say_so(root: str) -> None:
    found = seen(pod(root, calls=()))
    assert off(found) >= {"samples", "zombies", "cgroup-events", "latency"}
    assert "seccomp" in " ".join(found["samples"])
    assert "seccomp" in " ".join(found["zombies"])
    admin = seen(pod(root, oci.held(capabilities((), "before-5.8")), calls=()))
    assert off(admin) <= {"units", "journal"}


def test_the_node_has_the_clusters_name_and_not_the_pods(root: str) -> None:
    made = pod(root)
    named = replace(made, environment=(*made.environment, "EXHUME_NODE_NAME=worker-7"))
    done = oci.run(named, [sys.executable, "-m", "exhume", "check", "--host", HOST, "--json", "--for", "200ms"])
    assert json.loads(done.stdout)["node"]["hostname"] == "worker-7", done.stderr


def test_the_host_cannot_be_written_to_by_the_mounts(root: str) -> None:
    script = f"""
import os
for place in {[f"{HOST}/proc/sys/kernel/hostname", f"{HOST}/sys/class/net/lo/mtu", "/usr/x"]!r}:
    try:
        os.close(os.open(place, os.O_WRONLY | os.O_CREAT))
    except OSError as error:
        print(error.strerror)
"""
    done = oci.run(pod(root), [sys.executable, "-c", script])
    assert done.stdout.splitlines() == ["Read-only file system"] * 3, done.stderr


def test_kubectl_debug_sees_the_node_from_namespaces_of_its_own(root: str) -> None:
    """`kubectl debug node/N` mounts the host's / at /host, read and write, in the host's PID and network namespaces, with the
    runtime's default capabilities; --profile=sysadmin makes the container privileged."""
    whole = Mount("/", HOST)
    plain = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID", "SYS_CHROOT")
    for kept, privileged, expected in ((plain, False, "counted"), (NEEDED + plain, True, "named by walking")):
        made = oci.Pod(
            root,
            kept,
            (*oci.programs(TOP), whole),
            host_network=True,
            privileged=privileged,
            environment=(f"PYTHONPATH={TOP}/src",),
            seccomp=None if privileged or not oci.PROFILE.exists() else oci.profile(kept),
        )
        done = oci.run(made, [sys.executable, "-m", "exhume", "check", "--host", HOST, "--json", "--for", "500ms"])
        assert done.returncode in (0, 1, 2), done.stderr
        report = json.loads(done.stdout)
        here = subprocess.run(["uname", "-r"], capture_output=True, text=True).stdout.strip()
        assert report["node"]["kernel"] == here
        assert report["node"]["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        sources = {one["name"]: one for one in report["sources"]}
        assert "off" not in (sources["memcg"]["state"], sources["processes"]["state"])
        assert expected in sources["zombies"]["reason"]


@pytest.fixture(scope="module")
def image_root() -> Iterator[str]:
    if why := image.unavailable():
        pytest.skip(why)
    with image.root() as path:
        yield path


@pytest.mark.long
def test_the_image_sees_all_that_the_chart_gives_it(image_root: str, tmp_path: Path) -> None:
    kept, host = NEEDED, tuple(one for one in mounts(()) if os.path.exists(one.path))
    profile = oci.with_calls(oci.profile(kept), oci.NEW_CALLS) if oci.PROFILE.exists() else None
    state = tmp_path / "state"
    state.mkdir()
    made = oci.Pod(image_root, kept, host, seccomp=profile, writable={"/var/lib/exhume": str(state)})
    done = oci.run(made, ["exhume", "check", "--host", HOST, "--json", "--for", "500ms"])
    assert done.returncode in (0, 1, 2), done.stderr
    sources = {one["name"]: one for one in json.loads(done.stdout)["sources"]}
    assert {name for name, one in sources.items() if one["state"] == "off"} <= {"units", "journal"}
    done = oci.run(made, ["exhume", "record", "--for", "3s", "--host", HOST, "/var/lib/exhume/recording"])
    assert done.returncode == 0, done.stderr
    assert (state / "recording/recording.json").exists()
    done = oci.run(made, ["sh", "-c", "command -v journalctl && touch /x"])
    assert done.stdout == "/usr/bin/journalctl\n"
    assert "Read-only file system" in done.stderr
