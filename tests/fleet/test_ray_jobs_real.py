"""Outcomes of jobs from the dashboard of a real Ray cluster, joined with minutes of its node."""

import json
from pathlib import Path

import pytest

from tests.fleet import ray_environment

pytestmark = pytest.mark.ci

TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "5a" * 32}
PORT = "8265"
# Prints JSON: the rows, and what `exhume fleet jobs` makes of them.
SCRIPT = f"""
import contextlib, dataclasses, io, json, os, socket, subprocess, sys, time
from datetime import datetime, timedelta, UTC
from exhume.cli.main import main
from exhume.fleet import ray_jobs

place, work = sys.argv[1:]
start = ["ray", "start", "--head", "--num-cpus=2", "--num-gpus=4", "--object-store-memory=100000000", f"--temp-dir={{place}}",
         "--port=6399", "--dashboard-host=127.0.0.1", "--dashboard-port={PORT}", "--disable-usage-stats"]
subprocess.run(start, check=True, stdout=subprocess.DEVNULL)
from ray.job_submission import JobSubmissionClient

good = '''
import ray
ray.init()
@ray.remote(num_gpus=2)
def held(): return 1
ray.get([held.remote() for _ in range(3)])
'''
dies = '''
import os, ray
ray.init()
@ray.remote(num_gpus=3)
class Held:
    def die(self): os._exit(1)
ray.get(Held.remote().die.remote())
'''
client = JobSubmissionClient("http://127.0.0.1:{PORT}")
for name, text in (("good", good), ("dies", dies)):
    with open(f"{{work}}/{{name}}.py", "w") as file:
        file.write(text)
    client.submit_job(entrypoint=f"{{sys.executable}} {{work}}/{{name}}.py", submission_id=name)
client.submit_job(entrypoint="sleep 600", submission_id="halted")

def states():
    return {{each.submission_id: str(each.status.value) for each in client.list_jobs()}}

until = time.monotonic() + 150
while time.monotonic() < until and not {{states().get("good"), states().get("dies")}} <= {{"SUCCEEDED", "FAILED"}}:
    time.sleep(0.5)
client.stop_job("halted")
while time.monotonic() < until and states().get("halted") != "STOPPED":
    time.sleep(0.5)
time.sleep(2)  # tasks are told to the head once a second (RAY_task_events_report_interval_ms)
rows, troubles = ray_jobs.load("127.0.0.1:{PORT}")

# The minutes of this node: a reset in the one that began a second before the job died, and after it was started.
died = next(row.ended_s for row in rows if row.job == "dies")
begin = datetime.fromtimestamp(died - 1, UTC).replace(tzinfo=None)
with open(f"{{work}}/minutes.csv", "w") as file:
    file.write("node,time,resets\\n")
    for minute in range(-120, 3):
        file.write(f"{{socket.gethostname()}},{{begin + timedelta(minutes=minute)}},{{int(minute == 0)}}\\n")
out = io.StringIO()
with contextlib.redirect_stdout(out):
    main(["fleet", "jobs", work, "--jobs", "ray:http://127.0.0.1:{PORT}", "--json"])
print(json.dumps([[dataclasses.asdict(row) for row in rows], troubles, json.loads(out.getvalue()), socket.gethostname()]))
"""


def test_jobs_of_a_real_ray_cluster(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    with ray_environment.short_directory() as place:
        done = ray_environment.run([str(tmp_path / "script.py"), place, str(tmp_path)], tmp_path, TOKEN)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-4000:]
    rows, troubles, told, host = json.loads(done.stdout.splitlines()[-1])
    found = {row["job"]: row for row in rows}
    assert sorted(found) == sorted(row["job"] for row in rows) == ["dies", "good", "halted"]
    assert {name: (row["outcome"], row["gpus"]) for name, row in found.items()} == {
        "good": ("succeeded", found["good"]["gpus"]),
        "dies": ("failed", 3.0),
        "halted": ("stopped", 0.0),
    }
    # Two at a time fit onto the four, or the tasks were so short that they came one after the other.
    assert found["good"]["gpus"] in (2.0, 4.0)
    assert found["dies"]["error"].startswith("ActorDiedError: The actor died")
    assert {row["node"] for row in rows} == {host}
    assert all(row["started_s"] < row["ended_s"] for row in rows)
    assert troubles == []
    assert (told["jobs"], told["failed"], told["near"]) == (2, 1, 1)
    assert told["errors"] == [{"error": "ActorDiedError", "near": 1, "all": 1}]
