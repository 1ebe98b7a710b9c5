"""CONTRIBUTING.md shows how to add a kind of finding: this does exactly what it says, in a copy of the package."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
USE = """
import json
from exhume.diagnosis.findings.registry import KINDS
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.judge import judge
from exhume.diagnosis.report import as_json, from_json
from exhume.recording.recording import labels
from exhume.recording.source_state import SourceState
from tests.diagnosis.findings import made

recording = made.recording()
made.cores(recording, 6.0, {2: [(1.0, 5.0, "system")]})
recording.add_source(0, "softnet", SourceState("on"))
for time, dropped in ((0, 0), (6, 70)):
    recording.count(time * made.SECOND, "softnet_dropped", dropped, labels(cpu="2"))
report = judge(recording, Thresholds())
document = as_json(report)
assert as_json(from_json(document)) == document
print(json.dumps(document))
"""


def test_a_new_kind_is_one_file_and_one_line(tmp_path: Path) -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    module, line = re.findall(
        r"```python\n# src/exhume/diagnosis/findings/(?:backlog_dropped|registry)\.py[^\n]*\n(.*?)```", page, re.DOTALL
    )
    copy = tmp_path / "src"
    shutil.copytree(ROOT / "src" / "exhume", copy / "exhume", ignore=shutil.ignore_patterns("__pycache__"))
    registry = copy / "exhume" / "diagnosis" / "findings" / "registry.py"
    (registry.parent / "backlog_dropped.py").write_text(module)
    text = registry.read_text().replace("import (\n", "import (\n    backlog_dropped,\n", 1)
    registry.write_text(text.replace("    nic_reset.KIND,\n", f"    nic_reset.KIND,\n{line}"))

    run = [sys.executable, "-c", USE]
    environment = {"PYTHONPATH": f"{copy}:{ROOT}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    (dropped,) = [one for one in report["findings"] if one["kind"] == "backlog-dropped"]
    assert dropped["facts"] == {"core": 2, "dropped": 70}
    by_id = {one["id"]: one["kind"] for one in report["findings"]}
    assert [by_id[link["finding"]] for link in report["verdict"]["chain"]] == ["core-saturated", "backlog-dropped"]

    subprocess.run([sys.executable, "-m", "exhume.diagnosis.schema"], cwd=tmp_path, env=environment, check=True)
    schema = json.loads((copy / "exhume" / "diagnosis" / "report.schema.json").read_text())
    assert "backlog-dropped" in schema["$defs"]
