// @ts-check
// The flame graph of the selection: fetches its tree, lays it out, and keeps what is on the canvas in step with the store.
import { isAbort } from './api.js';
import { element, makeControls } from './flame_controls.js';
import { colour, paint, readPalette, ROW, rowAt } from './flame_draw.js';
import { find, frameAt, nearest, path, rowsSeen } from './flame_find.js';
import { listen } from './flame_input.js';
import { layOut } from './flame_layout.js';
import { search } from './flame_search.js';
import { makeTip } from './flame_tip.js';
import { lines, moment, summary } from './flame_words.js';
import { told, viewOf } from './flame_zoom.js';
import { patient } from './patient.js';
import { chosen, wentAlong } from './state.js';

/** @typedef {import('./state.js').Store} Store */
/** @typedef {import('./state.js').State} State */
/** @typedef {import('./api.js').Api} Api */
/** @typedef {import('./flame_layout.js').Layout} Layout */
/** @typedef {import('./flame_layout.js').FlameData} FlameData */
/** @typedef {import('./flame_draw.js').Picture} Picture */

/** @type {(keyof State)[]} */
const ASKED = ['cores', 'comm', 'pid', 'tid', 'cgroup', 'by', 'reverse', 'idle', 'base'];
/** @type {(keyof State)[]} */
const LAID_OUT = ['hide', 'side'];
// A pan changes the window many times a second.
const PAUSE_MS = 100;
const ZOOM_MS = 150;
const LEAST_SEEN = 0.5;

/** @type {(() => Picture | null) | null} */
let shownPicture = null;

/** What is on the canvas, for export.js; null where there is nothing. */
export function picture() {
  return shownPicture === null ? null : shownPicture();
}

/** @param {HTMLElement} host @param {Store} store @param {Api} api */
export function mountFlame(host, store, api) {
  const controls = makeControls(store);
  const scroller = element('div', 'flame-scroller');
  const spacer = element('div', 'flame-spacer');
  const canvas = document.createElement('canvas');
  const tip = makeTip();
  const spoken = element('div', 'flame-unseen');
  const empty = element('p', 'flame-empty');
  canvas.tabIndex = 0;
  canvas.className = 'flame-canvas';
  canvas.setAttribute('role', 'application');
  canvas.setAttribute('aria-roledescription', 'flame graph');
  canvas.setAttribute('aria-label', 'Flame graph. Arrows go from frame to frame, Enter zooms, Escape goes back, '
    + 'H hides, C copies the name, Shift+C the stack, M opens the menu.');
  spoken.setAttribute('aria-live', 'polite');
  empty.setAttribute('role', 'status');
  empty.hidden = true;
  scroller.append(spacer);
  spacer.append(canvas, tip.outline);
  host.classList.add('flame');
  host.replaceChildren(controls.bar, controls.crumbs, controls.note, empty, scroller, controls.legend, tip.text, spoken);
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d', { alpha: false }));

  /** @type {FlameData | null} */
  let data = null;
  let covers = chosen(store.get());
  /** @type {Picture | null} */
  let now = null;
  let [animation, planned] = [0, 0];
  shownPicture = () => now;

  const plan = () => {
    if (!planned) planned = requestAnimationFrame(draw);
  };

  function draw() {
    planned = 0;
    if (now === null || now.width <= 0) return;
    const ratio = devicePixelRatio || 1;
    now.scrolled = scroller.scrollTop;
    now.height = scroller.clientHeight;
    now.ratio = ratio;
    const [wide, high] = [Math.round(now.width * ratio), Math.round(now.height * ratio)];
    if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high];
    canvas.style.height = `${now.height}px`;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    canvas.dataset.drawn = String(paint(context, now));
  }

  /** Asks for the tree of what is chosen. */
  const asking = patient(async () => {
    const state = store.get();
    const span = chosen(state);
    host.setAttribute('aria-busy', 'true');
    try {
      data = await api.flame(span.from, span.to, state);
      covers = span;
      take();
    } catch (error) {
      if (isAbort(error)) return;
      data = null;
      nothing(error instanceof Error ? error.message : String(error), true);
    }
    host.removeAttribute('aria-busy');
  });

  /** @param {string} text @param {boolean} [bad] */
  function nothing(text, bad = false) {
    now = null;
    empty.textContent = text;
    empty.classList.toggle('bad', bad);
    empty.hidden = false;
    scroller.hidden = controls.legend.hidden = true;
    controls.note.textContent = '';
    controls.showPath([], () => {});
    controls.show(store.get(), { compared: false });
  }

  /** The tree, laid out anew: other data, other widths, something hidden. */
  function take() {
    if (data === null) return;
    const state = store.get();
    const { from, to } = covers;
    if (data.total === 0 && data.base_total === 0) {
      const idle = state.idle ? '' : ' Idle ones are left out.';
      nothing(`There are no samples between ${moment(store.about(), from)} and ${moment(store.about(), to)} that the filters let through.${idle}`);
      return;
    }
    empty.hidden = true;
    scroller.hidden = controls.legend.hidden = false;
    const layout = layOut(data, { side: data.total > 0 ? state.side : 'base', hide: state.hide });
    const palette = readPalette(getComputedStyle(host));
    const focused = now !== null && now.focused >= 0 ? find(layout, path(now.layout, now.focused)) : -1;
    now = {
      layout, palette, fill: colour(layout, palette), view: { from: 0, to: 1 }, width: 0, height: 0, ratio: 1, scrolled: 0, rows: 1,
      root: state.root ?? 'top', zoomed: 0, focused, matches: null,
    };
    resize();
    zoomTo(false);
    describe();
  }

  function describe() {
    if (now === null || data === null) return;
    const { layout } = now;
    const state = store.get();
    controls.note.textContent = summary(layout, data.baseline ?? null, covers, state.base, store.about());
    if (layout.hiddenCount) {
      const back = element('button', 'flame-back');
      back.setAttribute('type', 'button');
      back.textContent = `show what is hidden (${state.hide.length === 1 ? state.hide[0].slice(0, 40) : `${state.hide.length} names`})`;
      back.addEventListener('click', () => store.set({ hide: [] }, { push: true }));
      controls.note.append(' · ', back);
    }
    controls.show(state, { compared: layout.compared });
    controls.showLegend(layout.compared, now.palette);
  }

  /** Goes to the frame that the store says, in a few steps or at once. @param {boolean} moving */
  function zoomTo(moving) {
    if (now === null) return;
    const { layout } = now;
    now.zoomed = nearest(layout, store.get().zoom);
    const begin = { ...now.view };
    const end = viewOf(layout, now.zoomed);
    controls.showPath(path(layout, now.zoomed), (length) => store.set({ zoom: path(layout, /** @type {Picture} */ (now).zoomed).slice(0, length) }, { push: true }));
    match();
    cancelAnimationFrame(animation);
    fit(end);
    if (!moving || matchMedia('(prefers-reduced-motion: reduce)').matches) {
      now.view = end;
      plan();
      return;
    }
    const started = performance.now();
    const move = (/** @type {number} */ time) => {
      if (now === null) return;
      const part = Math.min(1, Math.max(0, time - started) / ZOOM_MS);
      const eased = part * (2 - part);
      now.view = { from: begin.from + (end.from - begin.from) * eased, to: begin.to + (end.to - begin.to) * eased };
      draw();
      if (part < 1) animation = requestAnimationFrame(move);
    };
    animation = requestAnimationFrame(move);
  }

  /** As high as what can be seen is deep. @param {{from: number, to: number}} view */
  function fit(view) {
    if (now === null || now.width <= 0) return;
    const before = now.rows;
    now.rows = rowsSeen(now.layout, view.from, view.to, ((view.to - view.from) / now.width) * LEAST_SEEN);
    spacer.style.height = `${now.rows * ROW}px`;
    if (now.root === 'bottom' && now.rows !== before) scroller.scrollTop = now.rows * ROW;
  }

  function match() {
    if (now === null) return;
    const found = search(now.layout, store.get().search, now.zoomed);
    now.matches = found.names;
    controls.tellMatched(told(found), found.error !== '');
    plan();
  }

  function resize() {
    if (now === null) return;
    now.width = scroller.clientWidth;
    fit(now.view);
    plan();
  }

  /** @param {number} x @param {number} y on the canvas @returns {number} */
  function at(x, y) {
    if (now === null || x < 0 || x >= now.width) return -1;
    return frameAt(now.layout, rowAt(now, y), now.view.from + (x / now.width) * (now.view.to - now.view.from));
  }

  /** The frame that the keys are at. @param {number} frame */
  function focus(frame) {
    if (now === null) return;
    now.focused = frame;
    if (frame >= 0) {
      spoken.textContent = lines(now.layout, frame, now.zoomed).join(', ');
      const place = (now.root === 'top' ? now.layout.depth[frame] : now.rows - 1 - now.layout.depth[frame]) * ROW;
      if (place < scroller.scrollTop) scroller.scrollTop = place;
      else if (place + ROW > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = place + ROW - scroller.clientHeight;
    }
    plan();
  }

  const point = (/** @type {number} */ frame, /** @type {{x: number, y: number} | null} */ pointer) => tip.show(now, frame, pointer);
  listen({ canvas, scroller, store, controls, at, point, focus, picture: () => now });
  scroller.addEventListener('scroll', plan);
  new ResizeObserver(resize).observe(scroller);
  const recolour = () => {
    if (now === null) return;
    now.palette = readPalette(getComputedStyle(host));
    now.fill = colour(now.layout, now.palette);
    controls.showLegend(now.layout.compared, now.palette);
    plan();
  };
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', recolour);
  new MutationObserver(recolour).observe(document.documentElement, { attributeFilter: ['data-theme'] });
  addEventListener('exhume:search', () => controls.pattern.focus());
  store.subscribe((state, before) => {
    const changed = (/** @type {keyof State} */ key) => JSON.stringify(state[key]) !== JSON.stringify(before[key]);
    const [next, last] = [chosen(state), chosen(before)];
    if (ASKED.some(changed)) asking.ask(0);
    else if (next.from !== last.from || next.to !== last.to) {
      if (state.selFrom === null && before.selFrom === null && wentAlong(state, before)) asking.follow(PAUSE_MS);
      else asking.ask(state.selFrom === null ? PAUSE_MS : 0);
    }
    if (LAID_OUT.some(changed)) take();
    else if (changed('root')) {
      if (now !== null) now.root = state.root ?? 'top';
      scroller.scrollTop = state.root === 'bottom' ? spacer.clientHeight : 0;
      plan();
    }
    if (changed('zoom')) zoomTo(true);
    if (changed('search')) match();
    controls.show(state, { compared: now !== null && now.layout.compared });
  });
  controls.show(store.get(), { compared: false });
  asking.ask(0);
}
