// @ts-check
// What the page shows, as one object, and the URL's fragment that says the same, so that a colleague who opens the link sees
// the same thing. Inside of the page times are microseconds from the begin of the recording; in the fragment they are seconds
// on the recording's clock, as dmesg shows them, because a live recording may lose its begin while a link lives on.
import {atEnd} from './axis.js';

/**
 * @typedef {object} State
 * @property {number} from begin of the window, µs
 * @property {number} to end of the window, µs
 * @property {'' | 'whole' | 'end'} follow what a live recording does to the window: nothing, stay all of it, stay at its end
 * @property {number | null} selFrom begin of the selection, µs, or nothing is selected
 * @property {number | null} selTo
 * @property {number[] | null} cores only these, in rising order
 * @property {string} comm regular expression
 * @property {string} pid one or more with commas
 * @property {string} tid of threads, one or more with commas
 * @property {string} cgroup regular expression
 * @property {'process' | 'thread' | 'core' | 'cgroup' | 'none'} by
 * @property {boolean} reverse
 * @property {boolean} idle whether idle samples count
 * @property {string} search regular expression on frames
 * @property {string} base 'off', 'auto' or 'FROM-TO' in µs
 * @property {string} judged empty: the verdict follows the selection; 'FROM-TO' in µs: it stays at that time
 * @property {string[]} zoom names of frames from the root to the zoomed one
 * @property {string[]} hide names of frames that are left out
 * @property {'top' | 'bottom'} root where the flame graph has its root
 * @property {'new' | 'base' | 'both'} side what widths mean in a comparison
 * @property {string} colour of the heat map: empty for samples, or a regular expression of symbols
 * @property {'auto' | 'light' | 'dark'} theme
 */

/**
 * @typedef {object} Store
 * @property {() => State} get
 * @property {(patch: Partial<State>, options?: {push?: boolean}) => void} set `push` makes a step that the back button undoes
 * @property {(listener: (state: State, before: State) => void) => () => void} subscribe gives what ends it
 * @property {() => import('./api.js').About} about the latest that is known
 * @property {(about: import('./api.js').About) => void} grow takes a newer one
 * @property {Signal<number | null>} hover the moment under the pointer, µs: every picture shows it
 * @property {Signal<{from: number, to: number} | null>} draft a selection that is being drawn; it becomes one when let go
 * @property {Signal<{text: string, bad: boolean}>} status the line at the foot of the page
 */

/**
 * @template T
 * @typedef {{get: () => T, set: (value: T) => void, subscribe: (listener: (value: T) => void) => () => void}} Signal
 */

/** @type {State} */
export const DEFAULTS = Object.freeze({
  from: 0, to: 0, follow: 'whole', selFrom: null, selTo: null, cores: null, comm: '', pid: '', tid: '', cgroup: '',
  by: 'process', reverse: false, idle: false, search: '', base: 'off', judged: '', zoom: [], hide: [], root: 'top', side: 'new',
  colour: '', theme: 'auto',
});
/** @type {Record<'by' | 'root' | 'side' | 'theme', string[]>} */
const WORDS = {
  by: ['process', 'thread', 'core', 'cgroup', 'none'], root: ['top', 'bottom'],
  side: ['new', 'base', 'both'], theme: ['auto', 'light', 'dark'],
};
const WORD_NAMES = /** @type {const} */ (['by', 'root', 'side', 'theme']);
const TEXTS = /** @type {const} */ (['comm', 'pid', 'tid', 'cgroup', 'search', 'colour']);
const LISTS = /** @type {const} */ (['zoom', 'hide']);
const LONGEST_TEXT = 4000;

/**
 * What is looked at closely: the selection, or the window where nothing is selected.
 * @param {State} state
 * @returns {{from: number, to: number}}
 */
export function chosen(state) {
  if (state.selFrom !== null && state.selTo !== null) return {from: state.selFrom, to: state.selTo};
  return {from: state.from, to: state.to};
}

/**
 * What a recording that has grown does to the window.
 * @param {State} state
 * @param {number} duration
 * @returns {Partial<State>}
 */
export function followed(state, duration) {
  if (state.follow === 'whole') return {from: 0, to: duration};
  return state.follow === 'end' ? atEnd(state, duration) : {};
}

/**
 * Whether the window only went with a live recording: nobody asked for another one.
 * @param {State} state
 * @param {State} before
 */
export function wentAlong(state, before) {
  if (state.follow === '' || state.follow !== before.follow) return false;
  return state.follow === 'whole' || state.to - state.from === before.to - before.from;
}

/**
 * The begin of a recording in whole microseconds of its clock.
 * @param {string} startNs
 */
export function originOf(startNs) {
  return Number(BigInt(startNs) / 1000n);
}

/**
 * A fragment as text; what is as it is anyway is left out.
 * @param {State} state
 * @param {number} origin begin of the recording on its clock, µs
 * @param {boolean} [elsewhere] whether a page whose address says nothing begins with another window than all of it
 */
export function format(state, origin, elsewhere = false) {
  const parts = new URLSearchParams();
  const seconds = (/** @type {number} */ time) => String(Math.round(origin + time) / 1e6);
  if (state.follow !== 'whole') {
    parts.set('from', seconds(state.from));
    parts.set('to', seconds(state.to));
  }
  if (state.follow === 'end' || (state.follow === 'whole' && elsewhere)) parts.set('follow', state.follow);
  if (state.selFrom !== null && state.selTo !== null) parts.set('sel', `${seconds(state.selFrom)}-${seconds(state.selTo)}`);
  if (state.cores !== null) parts.set('cores', state.cores.join(','));
  for (const name of TEXTS) if (state[name]) parts.set(name, state[name]);
  for (const name of WORD_NAMES) if (state[name] !== DEFAULTS[name]) parts.set(name, state[name]);
  if (state.reverse) parts.set('reverse', '1');
  if (state.idle) parts.set('idle', '1');
  for (const name of /** @type {const} */ (['base', 'judged'])) {
    const ends = span(state[name]);
    if (ends) parts.set(name, `${seconds(ends[0])}-${seconds(ends[1])}`);
  }
  if (state.base === 'auto') parts.set('base', 'auto');
  for (const name of LISTS) for (const frame of state[name]) parts.append(name, frame);
  return parts.toString();
}

/**
 * The state a fragment tells. What it does not tell, or tells wrongly, is as by default: a link is never an error.
 * @param {string} fragment with or without its #
 * @param {number} origin begin of the recording on its clock, µs
 * @param {number} duration of the recording, µs
 * @returns {State}
 */
export function parse(fragment, origin, duration) {
  const parts = new URLSearchParams(fragment.replace(/^#/, ''));
  const state = {...DEFAULTS, from: 0, to: Math.max(1, duration)};
  const from = moment(parts.get('from'), origin), to = moment(parts.get('to'), origin), follow = parts.get('follow');
  if (from !== null && to !== null && to > from && follow !== 'whole') {
    // What followed the end goes on with it: the moments of the address are of when it was written.
    if (follow === 'end') Object.assign(state, atEnd({from, to}, Math.max(1, duration)), {follow});
    else if (to > 0 && from < duration) Object.assign(state, {from: Math.max(0, from), to: Math.min(duration, to), follow: ''});
  }
  const selection = moments(parts.get('sel'), origin);
  if (selection) [state.selFrom, state.selTo] = selection;
  const cores = parts.get('cores');
  // -1 is the core of samples whose core nobody wrote down.
  if (cores !== null && /^(-1|\d{1,5})(,(-1|\d{1,5}))*$/.test(cores)) {
    state.cores = [...new Set(cores.split(',').map(Number))].sort((a, b) => a - b);
  }
  for (const name of TEXTS) state[name] = (parts.get(name) ?? '').slice(0, LONGEST_TEXT);
  for (const name of WORD_NAMES) {
    const word = parts.get(name);
    if (word !== null && WORDS[name].includes(word)) Object.assign(state, {[name]: word});
  }
  state.reverse = parts.get('reverse') === '1';
  state.idle = parts.get('idle') === '1';
  const base = parts.get('base'), against = moments(base, origin);
  const judged = moments(parts.get('judged'), origin);
  if (judged) state.judged = `${judged[0]}-${judged[1]}`;
  state.base = against ? `${against[0]}-${against[1]}` : base === 'auto' ? 'auto' : 'off';
  for (const name of LISTS) state[name] = parts.getAll(name).slice(0, 1000);
  return state;
}

/**
 * The two moments of a base 'FROM-TO', µs; null for 'off' and 'auto'.
 * @param {string} base
 * @returns {[number, number] | null}
 */
export function span(base) {
  const found = /^(-?\d+)-(-?\d+)$/.exec(base);
  return found && Number(found[2]) > Number(found[1]) ? [Number(found[1]), Number(found[2])] : null;
}

/** @param {string | null} text @param {number} origin */
function moment(text, origin) {
  return text !== null && /^\d{1,10}(\.\d{1,9})?$/.test(text) ? Math.round(Number(text) * 1e6) - origin : null;
}

/** @param {string | null} text @param {number} origin @returns {[number, number] | null} */
function moments(text, origin) {
  const [first, second, more] = (text ?? '').split('-');
  const from = moment(first ?? null, origin), to = moment(second ?? null, origin);
  return more === undefined && from !== null && to !== null && to > from ? [from, to] : null;
}

/**
 * A value that others want to hear of.
 * @template T
 * @param {T} value
 * @returns {Signal<T>}
 */
export function signal(value) {
  /** @type {Set<(value: T) => void>} */
  const listeners = new Set();
  return {
    get: () => value,
    set: (next) => {
      if (Object.is(next, value)) return;
      value = next;
      for (const listener of [...listeners]) listener(value);
    },
    subscribe: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

/** A recording of one sample takes no time; nothing can be shown of that. @param {import('./api.js').About} about */
function stretched(about) {
  return {...about, duration_us: Math.max(1, about.duration_us)};
}

/**
 * The one store of a page. Steps that are not pushed rewrite the current entry of the history, after a pause: browsers
 * refuse more than some hundred rewrites in half a minute, and a drag would make thousands.
 * @param {import('./api.js').About} about
 * @returns {Store}
 */
export function createStore(about) {
  let latest = stretched(about);
  let state = parse(location.hash, originOf(about.start_ns), latest.duration_us);
  // What was asked for on the command line, where the address says nothing.
  const elsewhere = Boolean(about.initial), said = new URLSearchParams(location.hash.slice(1)).has('follow');
  if (about.initial && state.follow === 'whole' && !said) state = {...state, ...about.initial, follow: ''};
  let writing = 0;
  /** @type {Set<(state: State, before: State) => void>} */
  const listeners = new Set();

  const address = () => {
    const fragment = format(state, originOf(latest.start_ns), elsewhere);
    return location.pathname + location.search + (fragment ? `#${fragment}` : '');
  };
  const flush = () => {
    if (!writing) return;
    clearTimeout(writing);
    writing = 0;
    history.replaceState(null, '', address());
  };
  /** @param {State} next */
  const change = (next) => {
    const before = state;
    state = next;
    for (const listener of [...listeners]) listener(state, before);
  };
  // The window of the command line is in the address at once: whoever copies that, or comes back to it, sees the same.
  if (elsewhere) history.replaceState(null, '', address());
  addEventListener('pagehide', flush);
  addEventListener('popstate', () => {
    clearTimeout(writing);
    writing = 0;
    change(parse(location.hash, originOf(latest.start_ns), latest.duration_us));
  });

  return {
    get: () => state,
    set: (patch, options = {}) => {
      if (options.push) {
        flush();
        const before = address();
        change({...state, ...patch});
        if (address() !== before) history.pushState(null, '', address());
        return;
      }
      change({...state, ...patch});
      clearTimeout(writing);
      writing = setTimeout(flush, 250);
    },
    subscribe: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    about: () => latest,
    grow: (next) => {
      latest = stretched(next);
    },
    hover: signal(/** @type {number | null} */ (null)),
    draft: signal(/** @type {{from: number, to: number} | null} */ (null)),
    status: signal(/** @type {{text: string, bad: boolean}} */ ({text: '', bad: false})),
  };
}
