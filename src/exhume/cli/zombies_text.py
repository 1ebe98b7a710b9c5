"""A zombie report as people read it."""

from collections.abc import Sequence

from exhume.cli.terminal import Style, wrap
from exhume.diagnosis.zombies import Group, ZombieReport
from exhume.host.owners import owner as owner_of
from exhume.host.quantities import SECOND, duration, size
from exhume.sources.zombie_holders import Holder
from exhume.text import printable

MOST_SHOWN = 15


def render(report: ZombieReport, style: Style, columns: int) -> str:
    if report.zombies == 0:
        return f"No zombie memory cgroups, {report.live:,} live ({printable(report.note)})\n"
    head = f"{report.zombies:,} zombie memory cgroups, {report.live:,} live"
    lines = [style(head, "bold") + style(f"   {size(report.cost_bytes)} of kernel memory, estimated", "dim"), ""]
    place = max(20, columns - 58)
    lines.append(style(f"  {'zombies':>9}  {'leak':>5}  {'pinned by':<22}{'where they lived':<{place}}{'owner'}", "dim"))
    for group in report.groups[:MOST_SHOWN]:
        lines += _group(group, style, place, columns)
    if len(report.groups) > MOST_SHOWN:
        rest = report.groups[MOST_SHOWN:]
        lines.append(
            f"  {sum(group.zombies for group in rest):>9,}  {'':>5}  in {len(rest):,} more places: exhume zombies --json"
        )
    lines.append("")
    lines += _held(report.groups[:MOST_SHOWN], style, columns)
    lines += _rate(report)
    lines += [style(line, "dim") for line in wrap(printable(report.note, 400), "  ", "  ", columns)]
    return "\n".join(lines) + "\n"


def _group(group: Group, style: Style, place: int, columns: int) -> list[str]:
    probability = f"{group.leak_probability:.0%}"
    colour = "red" if group.leak_probability >= 0.9 else "yellow" if group.leak_probability >= 0.5 else "dim"
    path = printable(group.path, place - 2)
    # A path that is too long for its column is cut in the middle; the JSON has it whole.
    line = f"  {group.zombies:>9,}  " + style(f"{probability:>5}", colour) + f"  {pinned(group):<22}{path:<{place}}"
    return [line + printable(owner(group), max(12, columns - place - 42))]


_LABELS = {Holder.SHARED_MEMORY: "tmpfs/shm", Holder.KERNEL_OBJECTS: "kernel"}


def pinned(group: Group) -> str:
    holder = group.holder
    if holder is None:
        return "nothing charged" if group.empty else "not known"
    if holder is Holder.UNREAPED_PROCESS:
        return holder.label
    return f"{_LABELS.get(holder, holder.label)} {size(group.pinned[holder])}"


def _held(groups: Sequence[Group], style: Style, columns: int) -> list[str]:
    """Who does not reap, and what frees those that a purge does not."""
    lines = []
    for group in groups:
        if group.unreaped and group.parent_pid:
            unit = owner_of(group.parent_cgroup)
            who = f"{group.parent_comm} [{group.parent_pid}]" + (f" of {unit}" if str(unit) else "")
            text = f"{group.unreaped:,} in {group.path} are held by dead processes that {who} has not reaped"
            lines += wrap(printable(text, 300), "  ", "    ", columns)
    for holder in dict.fromkeys(group.holder for group in groups):
        if holder is not None and holder is not Holder.PAGE_CACHE:
            lines += wrap(f"{holder.label}: {holder.frees}", "  ", "    ", columns)
            lines += [style(f"      {command}", "dim") for command in holder.commands]
    return [*lines, ""] if lines else []


def owner(group: Group) -> str:
    whose = group.unit or group.pod or (f"container {group.container[:12]}" if group.container else "")
    if not whose:
        return "not known"
    image = f" ({group.image})" if group.image else ""
    sure = f" {group.confidence:.0%}" if 0 < group.confidence < 0.9 else ""
    return f"{whose}{image}{sure}"


def _rate(report: ZombieReport) -> list[str]:
    if not report.followed_s:
        return []
    lines = [f"  {report.grew:+,} in {duration(report.followed_s * SECOND)}, {report.per_second * 86400:+,.0f} a day"]
    lines += [f"  {mark:>9,}  in {duration(seconds * SECOND)}" for mark, seconds in report.until()]
    return [*lines, ""]
