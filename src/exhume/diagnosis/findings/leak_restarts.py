"""The weakest word on where zombies come from: a unit that was restarted as often as there are zombies."""

from typing import Final

from exhume.diagnosis.findings.leak_places import Growth, LeakPlace, PlaceOwner, zombie_counts
from exhume.recording.events import risen
from exhume.recording.recording import Recording

RESTARTS: Final = "restarts"


def by_restarts(recording: Recording, zombies: int, fewest: int = 100) -> LeakPlace | None:
    """The one unit that was restarted about as often as there are zombies, or as came while we looked."""
    table = recording["units"]
    counts: dict[str, list[tuple[int, int, str]]] = {}
    numbers = zip(table.ints("time").tolist(), table.ints("restarts").tolist(), strict=True)
    for (time, restarts), unit, cgroup in zip(numbers, table.texts("unit"), table.texts("cgroup"), strict=True):
        counts.setdefault(unit, []).append((time, restarts, cgroup))
    every = zombie_counts(recording)
    came = every[-1][1] - every[0][1] if len(every) > 1 else 0
    fits = []
    for unit, rows in sorted(counts.items()):
        rows.sort()
        grew = sum(more for _, more in risen([(time, restarts) for time, restarts, _ in rows]))
        if _about(zombies, rows[-1][1], fewest) or _about(came, grew, 5):
            fits.append((unit, rows, grew))
    if len(fits) != 1:
        return None
    unit, rows, grew = fits[0]
    seconds = (rows[-1][0] - rows[0][0]) / 1e9
    growth = Growth(came, (every[-1][0] - every[0][0]) / 1e9, "the count of the node") if grew and seconds else None
    path = rows[-1][2] or f"/{unit}"
    return LeakPlace(
        path=path,
        home=path.rsplit("/", 1)[0] or "/",
        zombies=zombies,
        source=RESTARTS,
        method="systemd NRestarts",
        start=rows[0][0],
        end=rows[-1][0],
        owner=PlaceOwner(unit=unit, found_by=f"restarted {rows[-1][1]:,} times, {grew:,} of them while we looked"),
        growth=growth,
    )


def _about(some: int, others: int, fewest: int) -> bool:
    return others >= fewest and 0.8 * others <= some <= 1.25 * others
