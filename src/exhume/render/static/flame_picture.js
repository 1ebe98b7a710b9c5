// @ts-check
// The flame graphs of an SVG file or an HTML report: a click zooms. A picture that is a file of its own also has a search field
// and a line of detail, and is as wide as the window. Loads nothing, sends nothing.
import { across, compile, family, matched, shortened, told, viewOf } from './flame_zoom.js';

const LETTER = 6.7; // width of a letter of the 11 px monospaced font, pixels
const GAP = 0.4;

/** @param {SVGSVGElement} picture */
function animate(picture) {
  const groups = /** @type {SVGGElement[]} */ ([...picture.querySelectorAll('g[data-n]')]);
  if (!groups.length) return;
  const number = (/** @type {'s' | 'n' | 'd'} */ name) => groups.map((group) => Number(group.dataset[name]));
  const [start, width, depth] = [number('s'), number('n'), number('d')];
  const frames = { start, width, ...family(depth) };
  const titles = groups.map((group) => (group.querySelector('title')?.textContent ?? '').split('\n'));
  const boxes = groups.map((group) => /** @type {SVGRectElement} */ (group.querySelector('rect')));
  const margin = Number(boxes[0].getAttribute('x'));
  let room = picture.viewBox.baseVal.width - 2 * margin;
  let zoomed = 0;

  /** @param {number} frame @param {number} x @param {number} wide */
  const label = (frame, x, wide) => {
    const letters = Math.floor((wide - 6) / LETTER);
    let text = groups[frame].querySelector('text');
    if (letters < 3) {
      text?.remove();
      return;
    }
    if (!text) {
      text = document.createElementNS('http://www.w3.org/2000/svg', 'text');
      text.setAttribute('y', String(Number(boxes[frame].getAttribute('y')) + 13));
      groups[frame].append(text);
    }
    text.setAttribute('x', String(x + 3));
    text.textContent = shortened(titles[frame][0], letters);
  };
  const draw = () => {
    const view = viewOf(frames, zoomed);
    groups.forEach((group, frame) => {
      const x = across(start[frame], view, room);
      const wide = across(start[frame] + width[frame], view, room) - x;
      group.style.display = wide > 0 ? '' : 'none';
      group.classList.toggle('above', depth[frame] < depth[zoomed]);
      if (wide <= 0) return;
      boxes[frame].setAttribute('x', String(margin + x));
      boxes[frame].setAttribute('width', String(Math.max(0.2, wide - GAP)));
      label(frame, margin + x, wide);
    });
  };
  /** @param {Event} event */
  const frameOf = (event) => groups.indexOf(/** @type {SVGGElement} */ (/** @type {Element} */ (event.target).closest('g[data-n]')));
  let drawn = draw;
  picture.addEventListener('click', (event) => {
    if (frameOf(event) < 0) return;
    zoomed = frameOf(event);
    drawn();
  });
  if (!picture.querySelector('#pattern')) return;

  const byId = (/** @type {string} */ id) => /** @type {SVGElement} */ (picture.querySelector(`#${id}`));
  const [detail, note, reset] = [byId('detail'), byId('matched'), byId('reset')];
  const pattern = /** @type {HTMLInputElement} */ (picture.querySelector('#pattern'));
  drawn = () => {
    draw();
    reset.setAttribute('visibility', zoomed === 0 ? 'hidden' : 'visible');
    const { regex, error } = compile(pattern.value);
    const hit = titles.map((lines, frame) => frame > 0 && regex !== null && lines.slice(0, -1).some((line) => regex.test(line)));
    groups.forEach((group, frame) => group.classList.toggle('match', hit[frame]));
    pattern.style.borderColor = error ? '#c00' : '';
    note.textContent = told(regex === null ? { frames: null, share: 0, error } : matched(frames, (frame) => hit[frame], zoomed)) || ' ';
  };
  const fit = () => {
    const wide = Math.max(700, innerWidth - 16);
    room = wide - 2 * margin;
    picture.setAttribute('width', String(wide));
    picture.setAttribute('viewBox', `0 0 ${wide} ${picture.viewBox.baseVal.height}`);
    for (const one of picture.querySelectorAll('.title, .note')) one.setAttribute('x', String(wide / 2));
    byId('find').setAttribute('x', String(wide - margin - 200));
    note.setAttribute('x', String(wide - margin));
    drawn();
  };
  const whole = () => {
    zoomed = 0;
    drawn();
  };
  picture.addEventListener('mouseover', (event) => {
    const frame = frameOf(event);
    const share = `${((100 * width[frame]) / width[zoomed]).toFixed(2)}% of what is shown`;
    const lines = frame < 0 ? [' '] : [...titles[frame].filter(Boolean), ...(zoomed > 0 && depth[frame] >= depth[zoomed] ? [`(${share})`] : [])];
    detail.textContent = shortened(lines.join('  '), Math.floor((room - 220) / LETTER));
  });
  addEventListener('resize', fit);
  reset.addEventListener('click', whole);
  pattern.addEventListener('input', drawn);
  addEventListener('keydown', (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === 'f' && document.activeElement !== pattern) {
      event.preventDefault();
      pattern.focus();
    } else if (event.key === 'Escape') {
      pattern.value = '';
      whole();
    }
  });
  fit();
}

for (const picture of document.querySelectorAll('svg.flame')) animate(/** @type {SVGSVGElement} */ (picture));
