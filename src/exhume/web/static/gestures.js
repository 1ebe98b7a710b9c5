// @ts-check
// What a hand does on a picture of time: drag selects, shift and drag (or the middle button) pans, the wheel zooms around the
// pointer, a double click shows what is selected. A selection is a draft until the button is let go: only then does
// everything follow it.
import {between, panned, toTime, zoomed} from './axis.js';
import {hush, tell} from './canvas.js';

const MOVED = 4;

/**
 * A window that a hand chose: a live recording moves it no more, unless it lies at the end.
 * @param {import('./state.js').Store} store
 * @param {import('./axis.js').Span} span
 * @returns {Partial<import('./state.js').State>}
 */
export function windowed(store, span) {
  const {duration_us: duration, live} = store.about();
  const whole = span.from <= 0 && span.to >= duration;
  return {...span, follow: whole ? 'whole' : live && span.to >= duration ? 'end' : ''};
}

/** How much a turn of the wheel zooms. @param {number} by */
export function turned(by) {
  return Math.exp(Math.max(-1, Math.min(1, by * 0.002)));
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {import('./state.js').Store} store
 * @param {object} picture
 * @param {() => import('./axis.js').Plot} picture.plot
 * @param {(x: number, y: number) => number} [picture.at] the moment at a place, where it is not by x alone
 * @param {(x: number, y: number, time: number) => string[]} picture.say lines for the read-out
 * @param {(one: number, other: number) => import('./axis.js').Span | null} [picture.select] what a drag between two moments selects
 * @param {(x: number, y: number) => boolean} [picture.click] whether it knew what to do with a click
 */
export function gestures(canvas, store, picture) {
  /** @type {{mode: 'select' | 'pan', x: number, y: number, time: number, window: import('./axis.js').Span, moved: boolean} | null} */
  let drag = null;

  const window = () => ({from: store.get().from, to: store.get().to});
  const duration = () => store.about().duration_us;
  /** @param {number} x @param {number} y */
  const timeAt = (x, y) => picture.at?.(x, y) ?? toTime(x, window(), picture.plot());
  const selected = picture.select ?? ((/** @type {number} */ one, /** @type {number} */ other) => between(one, other, duration()));
  /** @param {number} x */
  const onPlot = (x) => x >= picture.plot().left - 2 && x <= picture.plot().left + picture.plot().width + 2;
  const end = () => {
    drag = null;
    canvas.classList.remove('panning');
    store.draft.set(null);
  };

  canvas.addEventListener('pointerdown', (event) => {
    if (event.button > 1 || !onPlot(event.offsetX)) return;
    const mode = event.shiftKey || event.button === 1 ? 'pan' : 'select';
    if (mode === 'pan') event.preventDefault();
    canvas.setPointerCapture(event.pointerId);
    canvas.classList.toggle('panning', mode === 'pan');
    const {offsetX: x, offsetY: y} = event;
    drag = {mode, x, y, time: timeAt(x, y), window: window(), moved: false};
  });

  canvas.addEventListener('pointermove', (event) => {
    const {offsetX: x, offsetY: y} = event;
    if (drag) {
      drag.moved ||= Math.abs(x - drag.x) >= MOVED || Math.abs(y - drag.y) >= MOVED;
      if (drag.mode === 'pan') {
        const by = ((drag.x - x) / picture.plot().width) * (drag.window.to - drag.window.from);
        store.set(windowed(store, panned(drag.window, by, duration())));
      } else if (drag.moved) store.draft.set(selected(drag.time, timeAt(x, y)));
    }
    const time = timeAt(x, y);
    store.hover.set(onPlot(x) ? time : null);
    const lines = picture.say(x, y, time);
    if (lines.length) tell(event.clientX, event.clientY, lines);
    else hush();
  });

  canvas.addEventListener('pointerup', (event) => {
    if (!drag) {
      picture.click?.(event.offsetX, event.offsetY);
      return;
    }
    const {mode, moved} = drag, draft = store.draft.get();
    end();
    hush();
    if (mode === 'pan') return;
    if (moved && draft) store.set({selFrom: draft.from, selTo: draft.to}, {push: true});
    else if (!moved && !picture.click?.(event.offsetX, event.offsetY)) {
      const {selFrom, selTo} = store.get(), time = toTime(event.offsetX, window(), picture.plot());
      // A click beside the selection ends it; one inside may be the first half of a double click.
      if (selFrom !== null && selTo !== null && (time < selFrom || time > selTo)) store.set({selFrom: null, selTo: null}, {push: true});
    }
  });
  canvas.addEventListener('pointercancel', end);
  canvas.addEventListener('pointerleave', () => {
    store.hover.set(null);
    hush();
  });

  canvas.addEventListener('dblclick', (event) => {
    if (!onPlot(event.offsetX)) return;
    const {selFrom, selTo} = store.get(), time = toTime(event.offsetX, window(), picture.plot());
    const on = selFrom !== null && selTo !== null && time >= selFrom && time <= selTo ? {from: selFrom, to: selTo} : null;
    const next = on ? zoomed(on, (on.from + on.to) / 2, 1.1, duration()) : zoomed(window(), time, 0.25, duration());
    store.set(windowed(store, next), {push: true});
  });

  canvas.addEventListener(
    'wheel',
    (event) => {
      if (!onPlot(event.offsetX)) return;
      const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
      const now = window();
      const across = Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : 0;
      const sideways = event.shiftKey ? event.deltaY || event.deltaX : across;
      const next = sideways
        ? panned(now, ((sideways * unit) / picture.plot().width) * (now.to - now.from), duration())
        : zoomed(now, toTime(event.offsetX, now, picture.plot()), turned(event.deltaY * unit), duration());
      // What changes nothing is left to the page, which then scrolls.
      if (next.from === now.from && next.to === now.to) return;
      event.preventDefault();
      store.set(windowed(store, next));
    },
    {passive: false},
  );
}
