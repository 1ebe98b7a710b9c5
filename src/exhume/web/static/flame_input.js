// @ts-check
// What the mouse and the keys do in the flame graph. They change the store, and the store changes the picture.
import { box, ROW } from './flame_draw.js';
import { path, step } from './flame_find.js';
import { copy, openMenu } from './flame_menu.js';
import { exactly } from './flame_search.js';

/** @typedef {import('./flame_draw.js').Picture} Picture */

/**
 * @typedef {object} Parts
 * @property {HTMLCanvasElement} canvas
 * @property {HTMLElement} scroller
 * @property {import('./state.js').Store} store
 * @property {import('./flame_controls.js').Controls} controls
 * @property {(x: number, y: number) => number} at the frame at a place on the canvas, or -1
 * @property {(frame: number, pointer: {x: number, y: number} | null) => void} point
 * @property {(frame: number) => void} focus
 * @property {() => Picture | null} picture
 */

/** @param {Parts} parts */
export function listen(parts) {
  const { canvas, store, at, point, focus, picture } = parts;
  /** Where Escape goes back to. @type {string[][]} */
  const earlier = [];

  /** @param {number} frame */
  const zoom = (frame) => {
    const shown = picture();
    if (shown === null || frame < 0 || frame === shown.zoomed) return;
    earlier.push(store.get().zoom);
    store.set({ zoom: path(shown.layout, frame) }, { push: true });
  };
  const back = () => {
    const before = earlier.pop() ?? [];
    if (store.get().zoom.length) store.set({ zoom: before.join('\n') === store.get().zoom.join('\n') ? [] : before }, { push: true });
    else store.set({ search: '' });
  };
  /** @param {number} frame */
  const hide = (frame) => {
    const shown = picture();
    if (shown === null || frame <= 0) return;
    const name = shown.layout.names[shown.layout.name[frame]];
    focus(shown.layout.parent[frame]);
    store.set({ hide: [...store.get().hide, name] }, { push: true });
  };
  /** @param {number} frame @param {boolean} whole */
  const copied = async (frame, whole) => {
    const shown = picture();
    if (shown === null || frame < 0) return;
    const names = frame === 0 ? ['all'] : path(shown.layout, frame);
    const done = await copy(whole ? names.join('\n') : names[names.length - 1]);
    const what = whole ? `the stack of ${names.length} frames` : 'the name';
    store.status.set({ text: done ? `Copied ${what}.` : 'The browser did not let us copy.', bad: !done });
  };
  /** @param {number} frame @param {{x: number, y: number}} place */
  const menu = (frame, place) => {
    const shown = picture();
    if (shown === null || frame < 0) return;
    focus(frame);
    point(-1, null);
    const name = shown.layout.names[shown.layout.name[frame]];
    const hidden = store.get().hide.length;
    openMenu(place, `frame ${name}`, [
      { label: 'Zoom', hint: 'Enter', run: () => zoom(frame) },
      { label: 'Copy name', hint: 'C', run: () => copied(frame, false) },
      { label: 'Copy stack', hint: 'Shift+C', run: () => copied(frame, true) },
      { label: 'Search for this name', run: () => store.set({ search: exactly(name) }, { push: true }) },
      ...(frame > 0 ? [{ label: 'Hide it, and all it calls', hint: 'H', run: () => hide(frame) }] : []),
      ...(hidden ? [{ label: `Show what is hidden (${hidden})`, run: () => store.set({ hide: [] }, { push: true }) }] : []),
    ], canvas);
  };

  canvas.addEventListener('pointermove', (event) => {
    const frame = at(event.offsetX, event.offsetY);
    canvas.style.cursor = frame >= 0 ? 'pointer' : '';
    point(frame, { x: event.clientX, y: event.clientY });
  });
  canvas.addEventListener('pointerleave', () => point(-1, null));
  parts.scroller.addEventListener('scroll', () => point(-1, null));
  canvas.addEventListener('click', (event) => {
    const frame = at(event.offsetX, event.offsetY);
    if (frame < 0) return;
    focus(frame);
    zoom(frame);
    point(-1, null);
  });
  canvas.addEventListener('contextmenu', (event) => {
    event.preventDefault();
    const frame = at(event.offsetX, event.offsetY);
    if (event.button === 2 && frame >= 0) menu(frame, { x: event.clientX, y: event.clientY });
  });
  canvas.addEventListener('focus', () => {
    const shown = picture();
    if (shown !== null && shown.focused < 0 && canvas.matches(':focus-visible')) focus(shown.zoomed);
  });
  canvas.addEventListener('blur', (event) => {
    if (!(event.relatedTarget instanceof Element && event.relatedTarget.closest('.flame-menu'))) focus(-1);
  });

  canvas.addEventListener('keydown', (event) => {
    const shown = picture();
    if (shown === null || event.ctrlKey || event.metaKey || event.altKey) return;
    const frame = shown.focused < 0 ? shown.zoomed : shown.focused;
    const down = shown.root === 'top' ? 'callee' : 'caller';
    const up = shown.root === 'top' ? 'caller' : 'callee';
    const here = () => {
      const place = box(shown, frame);
      const corner = canvas.getBoundingClientRect();
      return { x: corner.left + (place?.left ?? 0) + 8, y: corner.top + (place?.top ?? 0) + ROW };
    };
    if (event.key === 'ArrowDown') focus(step(shown.layout, frame, down));
    else if (event.key === 'ArrowUp') focus(step(shown.layout, frame, up));
    else if (event.key === 'ArrowLeft') focus(step(shown.layout, frame, 'before'));
    else if (event.key === 'ArrowRight') focus(step(shown.layout, frame, 'after'));
    else if (event.key === 'Home') focus(0);
    else if (event.key === 'Enter' || event.key === ' ') zoom(frame);
    else if (event.key === 'Escape') back();
    else if (event.key === 'h' || event.key === 'Delete') hide(frame);
    else if (event.key === 'c') void copied(frame, false);
    else if (event.key === 'C') void copied(frame, true);
    else if (event.key === 'm' || event.key === 'ContextMenu' || (event.key === 'F10' && event.shiftKey)) menu(frame, here());
    else return;
    event.preventDefault();
  });
  parts.controls.pattern.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' && event.key !== 'Enter') return;
    event.preventDefault();
    if (event.key === 'Escape') store.set({ search: parts.controls.pattern.value = '' });
    canvas.focus();
  });
}
