"""The flame graph as a picture: safe whatever functions are called, and alive in a real browser."""

import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.render.flame import Compared, Node, build, merge
from exhume.render.flame_svg import page, shortened, svg
from tests.render.made import Ran, idle, recorded

SVG = "{http://www.w3.org/2000/svg}"
ROOT = build(
    *recorded(
        Ran(0, "kubelet", "kubelet:main k:read k:walk", 60),
        Ran(0, "kubelet", "kubelet:main k:write", 15),
        Ran(1, "sshd", "sshd:main j:hot", 5, "user"),
        idle(1, 20),
    )
)


def groups(text: str) -> dict[str, ElementTree.Element]:
    """Frames by their title's first line."""
    found = ElementTree.fromstring(text).find(f"{SVG}g")
    assert found is not None
    return {(group.findtext(f"{SVG}title") or "").split("\n")[0]: group for group in found}


def test_every_frame_is_there_with_its_samples_and_module() -> None:
    found = groups(svg(ROOT, "a title"))
    assert set(found) == {"all", "kubelet", "main", "read", "walk", "write", "sshd", "hot", "idle"}
    assert found["walk"].findtext(f"{SVG}title") == "walk\n[kernel]\n60 samples, 60.00%"


def test_widths_are_shares_and_children_lie_within_their_parents() -> None:
    found = groups(svg(ROOT, ""))

    def place(name: str) -> tuple[float, float]:
        rect = found[name].find(f"{SVG}rect")
        assert rect is not None
        return float(rect.get("x", "")), float(rect.get("width", ""))

    assert place("kubelet")[1] == pytest.approx(place("all")[1] * 0.75, abs=0.2)
    assert place("walk")[0] >= place("read")[0]
    assert sum(place("idle")) == pytest.approx(sum(place("all")), abs=0.2)


def test_colours_tell_kernel_user_run_time_and_idle() -> None:
    found = groups(svg(ROOT, ""))
    classes = {name: group.get("class", "") for name, group in found.items()}
    assert classes["walk"].startswith("k")
    assert classes["kubelet"] == "process"
    assert classes["hot"] == "jit"
    assert classes["idle"] == "idle"
    assert groups(svg(build(*recorded(Ran(0, "a", "a:main"))), ""))["main"].get("class", "").startswith("u")


def test_what_is_too_narrow_is_left_out_and_counted() -> None:
    text = svg(
        build(*recorded(Ran(0, "big", "big:main", 9_990), Ran(0, "tiny", "tiny:main k:f", 5), Ran(0, "some", "s:f", 20))), ""
    )
    assert set(groups(text)) == {"all", "big", "main", "some", "f"}
    assert "3 frames narrower than 0.1% not drawn" in text


def test_an_empty_tree_is_a_picture_too() -> None:
    ElementTree.fromstring(svg(Node("all", "all", 0), "nothing"))


def test_nothing_is_loaded_from_anywhere() -> None:
    text = svg(ROOT, "")
    addresses = set(re.findall(r"https?://[^\"' )]+", text))
    assert addresses == {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml"}
    assert not re.search(r"href|src=|url\(|@import|fetch\(|XMLHttp|eval\(|innerHTML", text)


HOSTILE = [
    "<script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "]]><script>alert(1)</script>",
    "\"' onload='alert(1)",
    "&amp;&#x3c;&",
    "\x00\x01\x1b[2J\u202e\ufffe\ud800",
    "x" * 4096,
    "<!-- -->\n\r\t",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text(name: str) -> None:
    node = Node(name, "user", 10, (Node(name, "kernel", 9, (), name),), name)
    _holds(svg(node, name, name))


@given(st.text(max_size=400))
def test_any_name_makes_a_well_formed_picture(name: str) -> None:
    _holds(svg(Node("all", "all", 3, (Node(name, "process", 3, (), name),)), name))


def _holds(text: str) -> None:
    root = ElementTree.fromstring(text.encode("utf-8"))
    assert len(root.findall(f".//{SVG}script")) == 1
    assert not any(name.startswith("on") for element in root.iter() for name in element.attrib)
    assert max(len(title.text or "") for title in root.iter(f"{SVG}title")) < 1000


def test_names_are_cut_to_the_room_they_have() -> None:
    assert shortened("function", 8) == "function"
    assert shortened("function", 7) == "functi…"


# What a person does, as events: zoom into a frame, search, look at the detail; then back.
BY_HAND = """<script><![CDATA[
const frame = (name) => [...document.querySelectorAll("#frames g")]
  .find((group) => group.querySelector("title").textContent.startsWith(name + "\\n"));
const say = (key, value) => document.documentElement.setAttribute("data-" + key, value);
const text = (id) => document.getElementById(id).textContent;
const pattern = document.getElementById("pattern");
const type = (value) => { pattern.value = value; pattern.dispatchEvent(new Event("input")); };
const wide = (name) => Number(frame(name).querySelector("rect").getAttribute("width"));
type("^walk$");
say("whole", text("matched"));
frame("read").dispatchEvent(new MouseEvent("click", {bubbles: true}));
say("zoomed", Math.round(100 * wide("read") / wide("all")) + " " + frame("write").style.display);
say("part", text("matched"));
type("(");
say("bad", text("matched"));
frame("walk").dispatchEvent(new MouseEvent("mouseover", {bubbles: true}));
say("detail", text("detail"));
document.getElementById("reset").dispatchEvent(new MouseEvent("click", {bubbles: true}));
say("back", Math.round(100 * wide("read") / wide("all")) + frame("write").style.display);
]]></script></svg>"""


def opened(file: Path, profile: Path) -> str:
    """The document after its script ran, in a real browser."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
    command += ["--dump-dom", f"--user-data-dir={profile}", f"file://{file}"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120).stdout


def test_zoom_search_and_detail_work_in_a_browser(tmp_path: Path) -> None:
    picture = tmp_path / "flame.svg"
    picture.write_text(svg(ROOT, "by hand").replace("</svg>", BY_HAND))
    shown = opened(picture, tmp_path / "profile")
    said = dict(re.findall(r'data-(whole|zoomed|part|bad|detail|back)="([^"]*)"', shown))
    assert said == {
        "whole": "60.0% matched in 1 frame",
        "zoomed": "100 none",
        "part": "100.0% matched in 1 frame",
        "bad": "not a regular expression: /(/i: Unterminated group",
        "detail": "walk  [kernel]  60 samples, 60.00%  (100.00% of what is shown)",
        "back": "60",
    }


# The page of a difference: a click on a frame of its first picture zooms that one, and not the other. Its policy lets only its
# own script run, which here is taken away for the one that clicks.
ZOOM = """<script>
const pictures = [...document.querySelectorAll("svg.flame")].map((one) => [...one.querySelectorAll("g")]);
const named = (groups, name) => groups.find((group) => group.querySelector("title").textContent.startsWith(name + "\\n"));
named(pictures[0], "read").dispatchEvent(new MouseEvent("click", {bubbles: true}));
const label = (groups) => named(groups, "read").querySelector("text").textContent;
const said = pictures.map((groups) => named(groups, "write").style.display + label(groups));
document.body.dataset.said = JSON.stringify([said, named(pictures[0], "kubelet").classList.contains("above")]);
</script></body>"""


def test_each_picture_of_a_page_zooms_for_itself(tmp_path: Path) -> None:
    text = page(Compared(merge([ROOT], [build(*recorded(idle(1, 5)))])), "a difference")
    assert text.count("in the quiet time</title>") == 2 * 10
    file = tmp_path / "difference.html"
    file.write_text(re.sub(r"<meta http-equiv[^>]*>", "", text).replace("</body>", ZOOM))
    (said,) = re.findall(r'data-said="([^"]*)"', opened(file, tmp_path / "profile"))
    assert said.replace("&quot;", '"') == '[["noneread","read"],true]'
