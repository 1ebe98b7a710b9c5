// @ts-check
// What the keyboard does: everything a hand can do with the pictures of time. Keys that a field, a button or another picture
// took are left to it.
import {inside, panned, zoomed} from './axis.js';
import {goTo} from './brush.js';
import {windowed} from './gestures.js';
import {incidentsTold} from './overview.js';

const PAN = 0.1, PAGE = 0.9, ZOOM = 0.6;

/** @type {[string, string][]} keys, and what they do */
export const KEYS = [
  ['← →', 'pan; with Shift a whole window'],
  ['+ −', 'zoom in, zoom out'],
  ['0', 'show all of the recording'],
  ['n p', 'next and previous incident'],
  ['s', 'select the middle of the window'],
  [', .', 'step the selection back and on by its own length'],
  ['< >', 'make the selection shorter, longer'],
  ['z', 'zoom to the selection'],
  ['/', 'search in the flame graph'],
  ['t', 'light, dark, or as the system is'],
  ['?', 'this help'],
  ['Esc', 'close the help; end the selection'],
];

/**
 * @param {import('./state.js').Store} store
 * @param {import('./api.js').Api} api
 * @param {{open: () => void, close: () => boolean}} help
 * @param {() => void} nextTheme
 */
export function mountKeys(store, api, help, nextTheme) {
  const duration = () => store.about().duration_us;
  /** @param {number} share of the window */
  const pan = (share) => {
    const {from, to} = store.get();
    store.set(windowed(store, panned({from, to}, share * (to - from), duration())));
  };
  /** @param {number} factor */
  const zoom = (factor) => {
    const {from, to, selFrom, selTo} = store.get(), hover = store.hover.get();
    const middle = selFrom !== null && selTo !== null && selTo > from && selFrom < to ? (selFrom + selTo) / 2 : (from + to) / 2;
    store.set(windowed(store, zoomed({from, to}, Math.min(to, Math.max(from, hover ?? middle)), factor, duration())));
  };
  /** @param {(span: import('./axis.js').Span) => import('./axis.js').Span} change */
  const select = (change) => {
    const {selFrom, selTo, from, to} = store.get();
    if (selFrom === null || selTo === null) return;
    const next = inside(change({from: selFrom, to: selTo}), duration());
    const patch = {selFrom: next.from, selTo: next.to};
    // What is selected stays in sight.
    const by = next.from < from ? next.from - from : next.to > to ? Math.min(next.to - to, next.from - from) : 0;
    store.set(by ? {...patch, ...windowed(store, panned({from, to}, by, duration()))} : patch);
  };
  /** @param {1 | -1} way */
  const incident = async (way) => {
    const overview = await api.overview(50, {key: 'incidents'}), {incidents} = overview;
    const at = store.get().selFrom ?? (way > 0 ? -1 : Infinity);
    const found = way > 0 ? incidents.find((one) => one.start > at) : [...incidents].reverse().find((one) => one.start < at);
    if (found) goTo(store, {from: found.start, to: found.end});
    else if (!incidents.length) store.status.set({text: incidentsTold(overview), bad: false});
    else store.status.set({text: `There is no incident ${way > 0 ? 'after' : 'before'} this one.`, bad: false});
  };

  /** @type {Record<string, (shift: boolean) => void>} */
  const actions = {
    ArrowLeft: (shift) => pan(shift ? -PAGE : -PAN),
    ArrowRight: (shift) => pan(shift ? PAGE : PAN),
    '+': () => zoom(ZOOM),
    '=': () => zoom(ZOOM),
    '-': () => zoom(1 / ZOOM),
    '0': () => store.set({from: 0, to: duration(), follow: 'whole'}, {push: true}),
    n: () => void incident(1).catch(() => {}),
    p: () => void incident(-1).catch(() => {}),
    s: () => {
      const {from, to} = store.get();
      store.set({selFrom: Math.round(from + 0.45 * (to - from)), selTo: Math.round(from + 0.55 * (to - from))}, {push: true});
    },
    ',': () => select(({from, to}) => ({from: from - (to - from), to: from})),
    '.': () => select(({from, to}) => ({from: to, to: to + (to - from)})),
    '<': () => select(({from, to}) => ({from: from + (to - from) / 4, to: to - (to - from) / 4})),
    '>': () => select(({from, to}) => ({from: from - (to - from) / 2, to: to + (to - from) / 2})),
    z: () => {
      const {selFrom, selTo} = store.get();
      if (selFrom === null || selTo === null) return;
      store.set(windowed(store, zoomed({from: selFrom, to: selTo}, (selFrom + selTo) / 2, 1.1, duration())), {push: true});
    },
    '/': () => dispatchEvent(new CustomEvent('exhume:search')),
    t: nextTheme,
    '?': help.open,
    Escape: () => {
      if (!help.close() && store.get().selFrom !== null) store.set({selFrom: null, selTo: null}, {push: true});
    },
  };
  addEventListener('keydown', (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    const on = /** @type {HTMLElement | null} */ (event.target instanceof HTMLElement ? event.target : null);
    if (on?.closest('input, select, textarea, [contenteditable], [role=menu]')) return;
    const action = Object.hasOwn(actions, event.key) ? actions[event.key] : null;
    if (!action) return;
    event.preventDefault();
    action(event.shiftKey);
  });
}
