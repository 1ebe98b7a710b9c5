"""cgroup-dirs-leak: visible directories that nobody removed. They slow readers down as zombies do, and rmdir cures them."""

from exhume.findings.model import Evidence, Examined, Finding
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording

KIND = "cgroup-dirs-leak"


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    table = recording["cgroup_dirs"]
    if not len(table):
        if not recording.on("cgroup-dirs"):
            return Examined(KIND, unseen=recording.why_off("cgroup-dirs"))
        return Examined(KIND, ruled_out="no cgroup has children")
    latest = int(table.ints("time").max())
    rows = [row for row in table.rows() if row["time"] == latest]
    findings = []
    for row in rows:
        share = row["empty"] / row["looked"] if row["looked"] else 0.0
        if row["children"] < thresholds.empty_dirs_floor or share < thresholds.empty_dirs_ratio:
            continue
        about = round(row["children"] * share)
        findings.append(
            Finding(
                KIND,
                row["path"],
                "warning",
                latest,
                latest,
                f"about {about:,} of the {row['children']:,} cgroup directories in {row['path']} hold no process, "
                f"e.g. {row['example'].rsplit('/', 1)[-1]}",
                (
                    Evidence("directories", row["children"], "cgroups", "link count of the directory"),
                    Evidence("looked at", row["looked"], "cgroups", "a sample spread over them"),
                    Evidence("empty", row["empty"], "cgroups", "cgroup.procs or cgroup.events of that sample"),
                ),
            )
        )
    if findings:
        return Examined(KIND, tuple(findings))
    crowded = max(row["children"] for row in rows)
    return Examined(KIND, ruled_out=f"no cgroup has more than {crowded:,} children")
