"""The script inside the SVG flame graph: zoom, search, detail. Written here, loads nothing, sends nothing."""

SCRIPT = r"""
"use strict";
(function () {
  const picture = document.documentElement;
  const margin = Number(picture.dataset.margin);
  const letter = Number(picture.dataset.letter);
  const height = picture.viewBox.baseVal.height;
  let room = picture.viewBox.baseVal.width - 2 * margin;
  const byId = (id) => document.getElementById(id);
  const detail = byId("detail"), matched = byId("matched"), reset = byId("reset"), pattern = byId("pattern");
  const frames = Array.from(byId("frames").children, (group) => {
    const lines = group.querySelector("title").textContent.split("\n");
    return {
      group, rect: group.querySelector("rect"), text: group.querySelector("text"),
      start: Number(group.dataset.s), count: Number(group.dataset.n), depth: Number(group.dataset.d),
      name: lines[0], module: lines[1], samples: lines[2], match: false,
    };
  });
  const of = new Map(frames.map((frame) => [frame.group, frame]));
  let shown = frames[0];

  function label(frame, x, width) {
    const letters = Math.floor((width - 6) / letter);
    if (letters < 3) {
      if (frame.text) frame.text.textContent = "";
      return;
    }
    if (!frame.text) {
      frame.text = document.createElementNS("http://www.w3.org/2000/svg", "text");
      frame.text.setAttribute("y", Number(frame.rect.getAttribute("y")) + 12);
      frame.group.appendChild(frame.text);
    }
    const name = Array.from(frame.name);
    frame.text.setAttribute("x", x + 3);
    frame.text.textContent = name.length <= letters ? frame.name : name.slice(0, letters - 1).join("") + "…";
  }

  function zoom(to) {
    shown = to;
    const end = to.start + to.count, scale = room / to.count;
    for (const frame of frames) {
      const above = frame.depth < to.depth && frame.start <= to.start && frame.start + frame.count >= end;
      const inside = frame.depth >= to.depth && frame.start >= to.start && frame.start + frame.count <= end;
      frame.group.style.display = above || inside ? "" : "none";
      frame.group.classList.toggle("above", above);
      if (!above && !inside) continue;
      const x = above ? margin : margin + (frame.start - to.start) * scale;
      const width = above ? room : Math.max(0.1, frame.count * scale);
      frame.rect.setAttribute("x", x);
      frame.rect.setAttribute("width", width);
      label(frame, x, width);
    }
    reset.setAttribute("visibility", to === frames[0] ? "hidden" : "visible");
    count();
  }

  function count() {
    const ranges = frames
      .filter((frame) => frame.match && frame.start >= shown.start && frame.start < shown.start + shown.count)
      .sort((a, b) => a.start - b.start || b.count - a.count);
    let sum = 0, reached = shown.start;
    for (const frame of ranges) {
      const from = Math.max(frame.start, reached), to = Math.min(frame.start + frame.count, shown.start + shown.count);
      if (to > from) { sum += to - from; reached = to; }
    }
    const share = (100 * sum / Math.max(1, shown.count)).toFixed(1);
    const of_what = shown === frames[0] ? "" : " of what is shown";
    matched.textContent = pattern.value ? "matched " + share + "%" + of_what : " ";
  }

  function search() {
    let wanted = null;
    pattern.style.borderColor = "";
    if (pattern.value) {
      try {
        wanted = new RegExp(pattern.value, pattern.value === pattern.value.toLowerCase() ? "i" : "");
      } catch (error) {
        pattern.style.borderColor = "#c00";
        matched.textContent = "not a regular expression";
        return;
      }
    }
    for (const frame of frames) {
      frame.match = wanted !== null && frame.depth > 0 && (wanted.test(frame.name) || wanted.test(frame.module));
      frame.group.classList.toggle("match", frame.match);
    }
    count();
  }

  function fit() {
    const width = Math.max(700, window.innerWidth - 16);
    room = width - 2 * margin;
    picture.setAttribute("width", width);
    picture.setAttribute("viewBox", "0 0 " + width + " " + height);
    for (const one of document.querySelectorAll(".title, .note")) one.setAttribute("x", width / 2);
    byId("find").setAttribute("x", width - margin - 200);
    matched.setAttribute("x", width - margin);
    zoom(shown);
  }

  if (!frames.length) return;
  byId("frames").addEventListener("click", (event) => {
    const frame = of.get(event.target.closest("g"));
    if (frame) zoom(frame);
  });
  byId("frames").addEventListener("mouseover", (event) => {
    const frame = of.get(event.target.closest("g"));
    if (!frame) return;
    const whole = frame.name + (frame.module ? "  " + frame.module : "") + "  " + frame.samples;
    const inside = (100 * frame.count / shown.count).toFixed(2);
    const part = shown !== frames[0] && frame.depth >= shown.depth ? " (" + inside + "% of what is shown)" : "";
    const letters = Math.floor((room - 180) / letter);
    const text = Array.from(whole + part);
    detail.textContent = text.length <= letters ? text.join("") : text.slice(0, letters - 1).join("") + "…";
  });
  byId("frames").addEventListener("mouseleave", () => { detail.textContent = " "; });
  window.addEventListener("resize", fit);
  reset.addEventListener("click", () => zoom(frames[0]));
  pattern.addEventListener("input", search);
  window.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "f" && document.activeElement !== pattern) {
      event.preventDefault();
      pattern.focus();
    } else if (event.key === "Escape") {
      pattern.value = "";
      search();
      zoom(frames[0]);
    }
  });
  fit();
})();
"""
