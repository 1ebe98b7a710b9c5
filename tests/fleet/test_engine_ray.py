"""--engine ray on a real cluster of this machine: the tests of the passes, and both engines over one made fleet."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fleet import ray_environment

pytestmark = pytest.mark.ci

TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "5a" * 32}

# On a cluster that was there before: both engines by the command, then what a worker knows of us. Prints JSON.
CLUSTER = """
import contextlib, io, json, os, subprocess, sys
from exhume.cli.main import main
from exhume.fleet.engine_ray import Ray

place, fleet = sys.argv[1:]
start = ["ray", "start", "--head", "--num-cpus=2", "--include-dashboard=false", "--object-store-memory=100000000",
         f"--temp-dir={place}", "--port=6399", "--disable-usage-stats"]
# Its workers find no exhume by themselves.
clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
subprocess.run(start, check=True, env=clean, cwd="/", stdout=subprocess.DEVNULL)

def told(*arguments):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main([*arguments, "--json"])
    return code, json.loads(out.getvalue())

found = {}
for command in ("cohorts", "jobs"):
    found[command] = [told("fleet", command, fleet, "--engine", "duckdb"),
                      told("fleet", command, fleet, "--engine", "ray", "--ray-address", "127.0.0.1:6399")]

def known(connection, source, files):
    import os, sys
    threads = connection.execute("SELECT current_setting('threads')").fetchone()[0]
    return [os.getpid(), "exhume" in sys.modules, len(files), threads]

steps = []
files = sorted(os.path.join(fleet, "minutes", each) for each in os.listdir(os.path.join(fleet, "minutes")))
os.environ["RAY_ADDRESS"] = "127.0.0.1:6399"
found["workers"] = Ray().run(known, "read_parquet($1)", files, steps.append)
found["steps"], found["files"], found["driver"] = steps, len(files), os.getpid()
def broken(connection, source, files):
    return connection.execute("SELECT no_such_column FROM " + source, [list(files)]).fetchall()
try:
    Ray().run(broken, "read_parquet($1)", files)
except Exception as error:
    found["broken"] = [type(error).__name__, str(error)]
mark = os.path.join(place, "mark")
def crashes(connection, source, files):
    import os
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return len(files)
    os._exit(1)
found["crashed"] = sum(Ray().run(crashes, "read_parquet($1)", files))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    ray_environment.python()
    place = tmp_path_factory.mktemp("made") / "fleet"
    command = [sys.executable, "-m", "exhume", "lab", "fleet", "--nodes", "600", "--days", "3", "-o", str(place)]
    subprocess.run(command, check=True, capture_output=True, cwd=ray_environment.ROOT, env={"PYTHONPATH": "src", "PATH": ""})
    return place


def test_the_tests_of_the_passes_pass_on_ray(tmp_path: Path) -> None:
    files = ["tests/fleet/test_cohorts_directory.py", "tests/fleet/test_jobs.py"]
    options = ["-q", "-p", "tests.fleet.on_ray", "-p", "no:cacheprovider", "-o", "filterwarnings=default"]
    done = ray_environment.run(["-m", "pytest", *options, *files], tmp_path, TOKEN, 600)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    passes = re.search(r"passes by Ray: (\d+)", done.stdout)
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passes
    assert passed
    # Each of those that have minutes goes over them once at least.
    assert int(passes[1]) >= 20
    assert "skipped" not in done.stdout


def test_both_engines_come_to_the_same_on_a_cluster_that_has_no_exhume(fleet: Path, tmp_path: Path) -> None:
    script = tmp_path / "cluster.py"
    script.write_text(CLUSTER)
    with ray_environment.short_directory() as place:
        done = ray_environment.run([str(script), place, str(fleet)], tmp_path, TOKEN)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    for command in ("cohorts", "jobs"):
        by_duckdb, by_ray = found[command]
        assert by_ray == by_duckdb
    assert found["cohorts"][0][1]["cohorts"]
    assert found["jobs"][0][1]["failed"] > 0
    assert all(pid != found["driver"] and not ours and threads == 1 for pid, ours, _, threads in found["workers"])
    assert sum(count for _, _, count, _ in found["workers"]) == found["files"] > 1
    assert found["steps"] == sorted(found["steps"])
    assert found["steps"][-1] == 1.0
    assert found["broken"][0] == "ExhumeError"
    assert "no_such_column" in found["broken"][1]
    # A worker that dies on the way is replaced, and what it had to do is done by another.
    assert found["crashed"] == found["files"]


def test_a_cluster_is_started_for_the_time_being_and_leaves_nothing(fleet: Path, tmp_path: Path) -> None:
    script = (
        "import os, sys; from exhume.cli.main import main; code = main(sys.argv[1:]);"
        "left = [each for each in os.listdir(os.environ['TMPDIR']) if each.startswith('exhume-ray-')];"
        "print(code, left, [each for each in os.environ if each.startswith('RAY_AUTH')], os.listdir(os.environ['HOME']))"
    )
    home = tmp_path / "home"
    home.mkdir()
    with ray_environment.short_directory() as place:
        done = ray_environment.run(
            ["-c", script, "fleet", "cohorts", str(fleet), "--json", "--engine", "ray"], home, {"TMPDIR": place}
        )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines()[-1] == "2 [] [] []"
    assert json.loads(done.stdout.rpartition("\n2 [")[0])["cohorts"]


def test_a_cluster_that_is_not_there_is_said_in_a_sentence(tmp_path: Path, fleet: Path) -> None:
    arguments = ["-m", "exhume", "fleet", "cohorts", str(fleet), "--engine", "ray", "--ray-address", "127.0.0.1:1"]
    done = ray_environment.run(arguments, tmp_path)
    assert done.returncode == 3, done.stderr[-4000:]
    assert "there is no Ray cluster at 127.0.0.1:1" in done.stderr
