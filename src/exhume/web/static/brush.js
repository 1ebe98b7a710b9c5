// @ts-check
// What a hand does on the overview: a drag on the frame of the window moves it, on an edge stretches it, elsewhere draws a new
// one; a click goes there, on an incident to that.
import {around, between, inside, panned, told, toTime, toX, zoomed} from './axis.js';
import {hush, plain, tell} from './canvas.js';
import {turned, windowed} from './gestures.js';
import {duration} from './quantities.js';

const EDGE = 6;

/**
 * Shows an incident with time around it, and selects it.
 * @param {import('./state.js').Store} store
 * @param {import('./axis.js').Span} incident
 */
export function goTo(store, incident) {
  const duration = store.about().duration_us, span = inside(incident, duration);
  store.set({...windowed(store, around(span, duration)), selFrom: span.from, selTo: span.to}, {push: true});
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {import('./state.js').Store} store
 * @param {object} picture
 * @param {() => import('./axis.js').Plot} picture.plot
 * @param {() => import('./axis.js').Span} picture.whole
 * @param {(x: number) => import('./api.js').Incident | undefined} picture.incidentAt
 * @param {number} picture.marks down to here marks of incidents lie
 * @param {number} picture.bottom of the picture without its scale
 */
export function brush(canvas, store, {plot, whole, incidentAt, marks, bottom}) {
  /** @type {{x: number, what: 'new' | 'move' | 'from' | 'to', window: import('./axis.js').Span, moved: boolean} | null} */
  let drag = null;
  const recorded = () => store.about().duration_us;
  /** @param {number} x */
  const what = (x) => {
    const {from, to} = store.get(), [left, right] = [toX(from, whole(), plot()), toX(to, whole(), plot())];
    if (to - from > 0.98 * recorded()) return 'new';
    if (Math.abs(x - left) < EDGE && right - left > 2 * EDGE) return 'from';
    if (Math.abs(x - right) < EDGE && right - left > 2 * EDGE) return 'to';
    return x > left - 3 && x < right + 3 ? 'move' : 'new';
  };
  canvas.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    const {from, to} = store.get();
    drag = {x: event.offsetX, what: what(event.offsetX), window: {from, to}, moved: false};
  });
  canvas.addEventListener('pointermove', (event) => {
    const time = toTime(event.offsetX, whole(), plot());
    if (drag) {
      drag.moved ||= Math.abs(event.offsetX - drag.x) > 3;
      const start = toTime(drag.x, whole(), plot()), {from, to} = drag.window;
      const next =
        drag.what === 'move' ? panned(drag.window, time - start, recorded())
          : between(drag.what === 'from' ? to : drag.what === 'to' ? from : start, time, recorded());
      if (drag.moved && next) store.set(windowed(store, inside(next, recorded())));
      return;
    }
    const under = event.offsetY < marks + 4 ? incidentAt(event.offsetX) : undefined, kind = what(event.offsetX);
    canvas.style.cursor = under ? 'pointer' : kind === 'move' ? 'grab' : kind === 'new' ? 'crosshair' : 'ew-resize';
    if (event.offsetX < plot().left) hush();
    else if (under) {
      const when = `${told(under.start, store.about())}  ${duration(under.end - under.start)}`;
      tell(event.clientX, event.clientY, [when, plain(under.summary)]);
    } else tell(event.clientX, event.clientY, [told(time, store.about())]);
    store.hover.set(event.offsetX >= plot().left ? time : null);
  });
  canvas.addEventListener('pointerup', (event) => {
    const ended = drag;
    drag = null;
    if (!ended || ended.moved) return;
    const under = incidentAt(event.offsetX);
    const {from, to} = store.get(), time = toTime(event.offsetX, whole(), plot());
    if (under && event.offsetY < bottom) goTo(store, {from: under.start, to: under.end});
    else if (ended.what === 'new' && to - from < 0.98 * recorded()) {
      store.set(windowed(store, inside({from: time - (to - from) / 2, to: time + (to - from) / 2}, recorded())), {push: true});
    }
  });
  canvas.addEventListener('pointercancel', () => (drag = null));
  canvas.addEventListener('pointerleave', () => {
    store.hover.set(null);
    hush();
  });
  canvas.addEventListener('dblclick', (event) => {
    if (!incidentAt(event.offsetX)) store.set({...whole(), follow: 'whole'}, {push: true});
  });
  canvas.addEventListener(
    'wheel',
    (event) => {
      const {from, to} = store.get();
      const time = Math.min(to, Math.max(from, toTime(event.offsetX, whole(), plot())));
      const next = zoomed({from, to}, time, turned(event.deltaY), recorded());
      if (next.from === from && next.to === to) return;
      event.preventDefault();
      store.set(windowed(store, next));
    },
    {passive: false},
  );
}
