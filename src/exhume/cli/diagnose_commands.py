"""The commands that show what a diagnosis tells of, with its window filled in."""

import shlex

from exhume.host.quantities import SECOND, compact
from exhume.render.scene import Scene
from exhume.text import printable


def commands(scene: Scene, anywhere: bool = False) -> list[str]:
    """What shows it, to be copied; nothing where the recording is gone by now. `anywhere`: by somebody in another time zone."""
    if not scene.name or not scene.verdict.chain:
        return []
    name = shlex.quote(printable(scene.name, 400))
    start, end = scene.focus
    long = compact(max(1, -(-(end - start) // SECOND)) * SECOND)
    core = f" --cpu {scene.core}" if scene.core is not None else ""
    exact, short = (scene.clock.typed, scene.clock.typed) if anywhere else (scene.clock.exact, scene.clock.short)
    found = []
    if scene.sampled:
        found.append(f"exhume flame {name} --at {exact(start)} --for {long}{core}")
        around = compact(-(-(scene.window[1] - scene.window[0]) // SECOND) * SECOND)
        found.append(f"exhume heat {name} --from {short(scene.window[0])} --for {around} --by core")
    device = next((finding.subject for finding in scene.story if finding.kind == "napi-starved"), "")
    if device and len(scene.recording["latency"]):
        found.append(f"exhume latency {name} --device {shlex.quote(printable(device, 60))}")
    return found
