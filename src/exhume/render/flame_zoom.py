"""The script of the HTML report: flame graphs zoom on a click. Written here, loads nothing, sends nothing."""

SCRIPT = r"""
"use strict";
for (const picture of document.querySelectorAll("svg.flame")) {
  const room = picture.viewBox.baseVal.width;
  const frames = Array.from(picture.querySelectorAll("g"), (group) => ({
    group, rect: group.querySelector("rect"), name: group.querySelector("title").textContent.split("\n")[0],
    start: Number(group.dataset.s), count: Number(group.dataset.n), depth: Number(group.dataset.d),
  }));
  const label = (frame, x, width) => {
    let text = frame.group.querySelector("text");
    const letters = Math.floor((width - 6) / 6.7);
    if (!text && letters >= 3) {
      text = document.createElementNS("http://www.w3.org/2000/svg", "text");
      text.setAttribute("y", Number(frame.rect.getAttribute("y")) + 13);
      frame.group.appendChild(text);
    }
    if (!text) return;
    const name = Array.from(frame.name);
    text.setAttribute("x", x + 3);
    text.textContent = letters < 3 ? "" : name.length <= letters ? frame.name : name.slice(0, letters - 1).join("") + "…";
  };
  const zoom = (to) => {
    const end = to.start + to.count, scale = room / to.count;
    for (const frame of frames) {
      const above = frame.depth < to.depth && frame.start <= to.start && frame.start + frame.count >= end;
      const inside = frame.depth >= to.depth && frame.start >= to.start && frame.start + frame.count <= end;
      frame.group.style.display = above || inside ? "" : "none";
      if (!above && !inside) continue;
      const x = above ? 0 : (frame.start - to.start) * scale;
      const width = above ? room : Math.max(0.2, frame.count * scale - 0.4);
      frame.rect.setAttribute("x", x);
      frame.rect.setAttribute("width", width);
      label(frame, x, width);
    }
  };
  picture.addEventListener("click", (event) => {
    const group = event.target.closest("g");
    const frame = frames.find((one) => one.group === group);
    if (frame) zoom(frame);
  });
}
"""
