"""cgroup-dirs-leak: visible directories that nobody removed. They slow readers down as zombies do, and rmdir cures them."""

from typing import Any

from exhume.findings.churn import churned
from exhume.findings.forecast import SHORTEST_S, per_hour
from exhume.findings.kernel_work import CGROUPFS, FLUSH, STATISTICS, WALK
from exhume.findings.leak_places import made_by
from exhume.findings.makers import SOURCE, maker
from exhume.findings.model import Evidence, Examined, Finding
from exhume.findings.sampled_work import sampled
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording
from exhume.text import printable

KIND = "cgroup-dirs-leak"
# A sample smaller than this says nothing about thousands.
FEWEST_LOOKED = 32
# Of a core's time; less is no more than anybody's look now and then.
LEAST_READ = 0.05


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    table = recording["cgroup_dirs"]
    if not len(table):
        if not recording.on("cgroup-dirs"):
            return Examined(KIND, unseen=recording.why_off("cgroup-dirs"))
        return Examined(KIND, ruled_out="no cgroup has children")
    latest = int(table.ints("time").max())
    read, reading = _readers(recording)
    every = sorted(table.rows(), key=lambda row: (row["time"], row["path"], row["mount"], row["children"]))
    rows = [row for row in every if row["time"] == latest]
    findings = []
    for row in rows:
        if row["looked"] < FEWEST_LOOKED:
            continue
        share = row["empty"] / row["looked"]
        about = round(row["leaves"] * share)
        if about < thresholds.empty_dirs_floor or share < thresholds.empty_dirs_ratio:
            continue
        directory = row["mount"].rstrip("/") + row["path"]
        findings.append(
            Finding(
                KIND,
                row["path"],
                "warning",
                latest,
                latest,
                f"about {about:,} of the {row['children']:,} cgroup directories in {directory} hold no process, "
                f"e.g. {row['example'].rsplit('/', 1)[-1]}{read}",
                (
                    Evidence("directory", directory, "", "/proc/self/mountinfo"),
                    Evidence("directories", row["children"], "cgroups", "link count of the directory"),
                    Evidence("leaves", row["leaves"], "cgroups without a child of their own", "link count of each"),
                    Evidence("looked at", row["looked"], "cgroups", "a sample spread over them"),
                    Evidence("empty", row["empty"], "cgroups", "cgroup.procs or cgroup.events of that sample"),
                    *_growing(every, row),
                    *_makers(recording, row["path"]),
                    *reading,
                ),
            )
        )
    if findings:
        findings.sort(key=lambda finding: (-finding.number("directories"), finding.subject))
        return Examined(KIND, tuple(findings))
    empty = max(round(row["leaves"] * row["empty"] / max(1, row["looked"])) for row in rows)
    if empty >= thresholds.empty_dirs_floor:
        return Examined(KIND, ruled_out="most directories of every crowded cgroup hold a process")
    if not empty:
        return Examined(KIND, ruled_out="no cgroup has an empty child among those looked at")
    return Examined(KIND, ruled_out=f"no cgroup has more than about {empty:,} empty children")


def _growing(every: list[dict[str, Any]], last: dict[str, Any]) -> list[Evidence]:
    """How many more there are than when it was first counted."""
    first = next(row for row in every if (row["path"], row["mount"]) == (last["path"], last["mount"]))
    seconds = (last["time"] - first["time"]) / 1e9
    if seconds <= 0:
        return []
    growth = last["children"] - first["children"]
    told = [Evidence("growth", growth, "cgroups", f"link count of the directory, over {seconds:,.0f} s")]
    if seconds >= SHORTEST_S:
        told.append(Evidence("rate", round(per_hour(growth, seconds), 1), "cgroups an hour", "link count of the directory"))
    return told


def _readers(recording: Recording) -> tuple[str, list[Evidence]]:
    """Who lists and reads cgroups, and how much of a core that takes: what the directories cost."""
    seen = sampled(recording)
    if seen is None:
        return "", []
    mask = seen.doing(CGROUPFS, STATISTICS, FLUSH, WALK)
    share, who = seen.steps(mask).mean() * recording.node.cpus, seen.most_by(mask)
    if who is None or share < LEAST_READ:
        return "", []
    evidence = [
        Evidence("read by", who.process, "", "stack samples"),
        Evidence("reading share", round(share, 3), "of a core's time, in listing and reading cgroups", "stack samples"),
    ]
    return f"; {printable(who.process)} spends {share:.0%} of a core on reading cgroups", evidence


def _makers(recording: Recording, path: str) -> list[Evidence]:
    """Who made some there and did not remove them, while we looked."""
    left = [group for group in churned(recording).groups if group.parent == path and group.life.removed < 0 <= group.life.made]
    if not left:
        return []
    who = maker(recording, made_by(left))
    told = [Evidence("made and not removed", len(left), "cgroups", SOURCE)]
    return told + (who.evidence() if who is not None else [])
