"""The pictures of docs/view.md, made anew: `python -m tests.browser.pictures`. Look at them before you keep them."""

import shutil
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from exhume.recording.recording import Recording
from exhume.recording.schema import TABLES
from exhume.recording.writer import Writer
from tests.browser.conftest import ARGUMENTS
from tests.browser.palette import with_palette
from tests.browser.views import ROOT, opened, served, settled
from tests.render.told import BEGIN, HZ, SECOND, told, write

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HERE = ROOT / "docs" / "pictures"
HELD = ((120.0, 127.6), (300.0, 307.6), (480.0, 487.6))
CORE, CORES, SECONDS = 39, 96, 600
START = BEGIN // SECOND
# Who else runs on the node: processes, the share of a core each of them takes, and what they do.
_OTHERS = {
    "java": (0.006, ("start Worker.run Cache.lookup HashMap.get", "start Worker.run Json.write")),
    "envoy": (0.004, ("main worker do_syscall_64 sys_epoll_wait", "main worker do_syscall_64 sock_sendmsg tcp_sendmsg")),
    "postgres": (0.003, ("main exec_query ExecutorRun index_getnext", "main exec_query do_syscall_64 vfs_read ext4_read")),
    "containerd": (0.001, ("runtime.mstart runtime.schedule runtime.findrunnable",)),
}
_PIXELS = """async (png) => {
  const image = await createImageBitmap(await (await fetch(`data:image/png;base64,${png}`)).blob());
  const context = new OffscreenCanvas(image.width, image.height).getContext('2d');
  context.drawImage(image, 0, 0);
  const {data} = context.getImageData(0, 0, image.width, image.height);
  let text = '';
  for (let at = 0; at < data.length; at += 30000) text += String.fromCharCode(...data.subarray(at, at + 30000));
  return [image.width, image.height, btoa(text)];
}"""
_KERNEL = ("do_", "sys_", "ep_", "sock_", "tcp_", "vfs_", "ext4_")


def node(seconds: int, held: tuple[tuple[float, float], ...]) -> Recording:
    """The incident as it is told, on a node that has other work, too."""
    random = np.random.default_rng(7)
    made = _uneven(told(seconds, held, CORES, CORE, sampled=1), random)
    ids: dict[str, int] = {}
    stacks: list[tuple[int, int, float]] = []
    for thread, (name, (share, chains)) in enumerate(_OTHERS.items(), 100):
        made["threads"].add(thread, 1000 + thread, 1000 + thread, 0, name, name, f"/kubepods/burstable/{name}", "", name, name)
        for chain in map(str.split, chains):
            for frame in chain:
                if frame not in ids:
                    ids[frame] = 100 + len(ids)
                    kernel = frame.startswith(_KERNEL)
                    module, space = ("[kernel]", "kernel") if kernel else (f"/usr/bin/{name}", "user")
                    made["frames"].add(ids[frame], frame, module, space, -1)
            state = "system" if chain[-1].startswith(_KERNEL) else "user"
            made["stacks"].add(100 + len(stacks), state, [ids[frame] for frame in chain])
            stacks.append((100 + len(stacks), thread, share / len(chains)))
    weights = [1 - sum(share for *_, share in stacks), *(share for *_, share in stacks)]
    which = np.array([2, *(stack for stack, _, _ in stacks)]), np.array([2, *(thread for _, thread, _ in stacks)])
    for core in (number for number in range(CORES) if number != CORE):
        ticks = np.arange(seconds * HZ)
        drawn = random.choice(len(weights), len(ticks), p=weights)
        # Java collects garbage, now and then, on a few cores.
        drawn = np.where((core % 24 == 5) & ((ticks / HZ + 40) % 150 < 3) & (drawn == 0), 1, drawn)
        made["samples"].add_columns({
            "time": BEGIN + ticks * SECOND // HZ + core * 100_000, "core": np.full(len(ticks), core),
            "thread": which[1][drawn], "stack": which[0][drawn],
        })  # fmt: skip
    return made


def _uneven(even: Recording, random: np.random.Generator) -> Recording:
    """The same, but for the counters of the cores that nothing happens to: no two of them do the same."""
    made = Recording(even.node)
    for name in TABLES:
        if name != "cpu":
            made[name].extend(even[name])
    columns = {column.name: even["cpu"].ints(column.name).copy() for column in TABLES["cpu"].columns}
    for core in (number for number in range(CORES) if number != CORE):
        rows = np.flatnonzero(columns["core"] == core)
        user, system = (np.cumsum(random.poisson(often, len(rows))) for often in (0.7, 0.2))
        columns["user"][rows], columns["system"][rows] = 1000 + user, 1000 + system
        columns["idle"][rows] = 1000 + 10 * np.arange(len(rows)) - user - system
    made["cpu"].add_columns(columns)
    return made


@contextmanager
def growing(path: Path, made: Recording) -> Iterator[None]:
    """A recording whose writer has not ended."""
    writer = Writer(str(path), made.node, {"hz": HZ, "event": "cpu-clock", "kernel_only": False}, budget_bytes=1 << 30)
    writer.append(made)
    try:
        yield
    finally:
        writer.close()


def keep(name: str, page: "Page", part: str = "", height: int | None = None) -> None:
    """All that is seen of the page, or a part of it; `height` is where the picture ends."""
    png = page.screenshot()
    if part:
        top, bottom = page.locator(part).evaluate(
            "(one) => [one.getBoundingClientRect().top + scrollY, one.getBoundingClientRect().bottom + scrollY]"
        )
        clip = {"x": 0, "y": top, "width": 1400, "height": bottom - top + 8}
        png = page.screenshot(full_page=True, clip=clip)  # type: ignore[arg-type]
    # Read by the browser, which has to know how anyway: a page of the server's own may not.
    blank = page.context.new_page()
    wide, high, data = blank.evaluate(_PIXELS, b64encode(png).decode())
    blank.close()
    pixels = np.frombuffer(b64decode(data), dtype=np.uint8).reshape(high, wide, 4)
    small = with_palette(pixels[:height, :, :3])
    (HERE / f"{name}.png").write_bytes(small)
    print(f"{name}.png: {len(small) / 1000:.0f} kB")


@contextmanager
def shown(browser: "Browser", address: str, fragment: str = "", scheme: str = "light", height: int = 1500) -> Iterator["Page"]:
    context = browser.new_context(
        viewport={"width": 1400, "height": height}, locale="en-GB", timezone_id="UTC",
        color_scheme="dark" if scheme == "dark" else "light",
    )  # fmt: skip
    context.set_default_timeout(120_000)
    page = context.new_page()
    opened(page, address, fragment)
    page.locator("#overview .incidents button").first.wait_for()
    page.locator("#lanes[aria-busy=false]").wait_for()
    page.locator("#heat[aria-busy=false]").wait_for()
    settled(page)
    yield page
    context.close()


def pictures(browser: "Browser", address: str) -> None:
    around = f"from={START + 476}&to={START + 492}"
    selected = f"{around}&sel={START + 483.2}-{START + 483.5}&cores={CORE}"
    with shown(browser, address, f"{selected}&search=mem_cgroup|numa_stat", "dark", 1700) as page:
        keep("view-dark", page)
    with shown(browser, address, selected, height=1700) as page:
        keep("view-incident", page)
    with shown(browser, address, f"{around}&sel={START + 478}-{START + 490}&cores={CORE}&base=auto&side=both") as page:
        keep("view-compared", page, "section:has(#flame)")
    with shown(browser, address, f"sel={START + 470}-{START + 500}") as page:
        page.locator(".verdict-chain .verdict-evidence summary").first.click()
        keep("view-verdict", page, "section:has(#verdict)")
    # Last: by now all of it is read.
    with shown(browser, address) as page:
        page.locator("#lanes .happened").wait_for()
        keep("view-light", page)


def main() -> None:
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        whole, live = Path(folder) / "whole", Path(folder) / "live"
        with served(write(whole, node(SECONDS, HELD))) as address:
            pictures(browser, address)
        live.mkdir()
        end = f"from={START + 40}&to={START + 90}&follow=end"
        with growing(live, node(90, ((60.0, 66.6),))), served(live) as address, shown(browser, address, end) as page:
            keep("view-live", page, height=900)
        browser.close()


if __name__ == "__main__":
    main()
