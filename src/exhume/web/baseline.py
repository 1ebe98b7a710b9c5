"""The time that a selection is compared with where nobody chose one: as long, quiet, and the nearest."""

from exhume.host.quantities import SECOND
from exhume.recording.folder import Folder
from exhume.render.baseline import quiet
from exhume.render.scene import SAMPLED, wanted
from exhume.web.view import View

_TABLES = ("anchors", "cpu", "events")
# Stack samples are looked through one by one where no counters of the cores were kept.
_MOST_SAMPLES = 3_000_000


def baseline(view: View, folder: Folder, focus: tuple[int, int], core: int | None) -> tuple[int, int] | None:
    """None where nothing was quiet around it."""
    whole = view.store.window(folder)
    start, end = wanted(focus, whole)
    end = min(whole[1], max(end, focus[1] + focus[0] - start))  # as far after it as before

    def find() -> tuple[int, int] | None:
        recording = folder.load(start, end, _TABLES)
        if not len(recording["cpu"]):
            if (end - start) / SECOND * max(1, folder.node.cpus) * view.store.hz > _MOST_SAMPLES:
                return None
            recording.extend(folder.load(start, end, SAMPLED))
        return quiet(recording, focus, core, nearest=True)

    found: tuple[int, int] | None = view.store.answers.get(("baseline", focus, core, end), find, lambda _: 100)
    return found
