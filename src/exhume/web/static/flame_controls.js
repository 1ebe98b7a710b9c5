// @ts-check
// The controls above the flame graph: grouping, direction, comparison, search, the path of the zoomed frame, the legend.
// They show what the store says and tell it what people choose; nothing is kept here.
import { chosen, span } from './state.js';
import { moment } from './flame_words.js';
import {duration} from './quantities.js';

/** @typedef {import('./state.js').Store} Store */
/** @typedef {import('./state.js').State} State */
/** @typedef {ReturnType<typeof makeControls>} Controls */

// Of a path this many frames are named at its end; the rest is in between.
const NAMED = 5;
// Kinds of colours as flame_draw.js has them; the last of a row of colours is the strongest.
/** @type {[string, string][]} */
const LEGEND = [['k', 'kernel'], ['u', 'user space'], ['p', 'Python'], ['j', 'made at run time'], ['i', 'idle']];
/** @type {[string, string][]} */
const LEGEND_COMPARED = [['-', 'less than in the base'], ['=', 'the same'], ['+', 'more than in the base; strongest: on one side only']];

/** @param {Store} store */
export function makeControls(store) {
  const by = choice('group by', [['process', 'process'], ['thread', 'thread'], ['core', 'core'], ['cgroup', 'cgroup'], ['none', 'nothing']],
    (value) => store.set({ by: /** @type {State['by']} */ (value), zoom: [] }, { push: true }));
  const reverse = toggle('reverse', 'begin at the functions that ran, go on to their callers',
    (on) => store.set({ reverse: on, zoom: [] }, { push: true }));
  const idle = toggle('idle', 'count the samples of idle cores, too', (on) => store.set({ idle: on }, { push: true }));
  const bottom = toggle('root below', 'callers at the bottom, as older flame graphs have them',
    (on) => store.set({ root: on ? 'bottom' : 'top' }, { push: true }));
  const compare = choice('compare with', [['off', 'nothing'], ['auto', 'a quiet time'], ['this', 'this selection from now on']],
    (value) => {
      const { from, to } = chosen(store.get());
      store.set({ base: value === 'this' ? `${Math.round(from)}-${Math.round(to)}` : value }, { push: true });
    });
  const side = choice('widths', [['new', 'of the selection'], ['base', 'of the base'], ['both', 'of both']],
    (value) => store.set({ side: /** @type {State['side']} */ (value) }, { push: true }));
  const pattern = document.createElement('input');
  Object.assign(pattern, { type: 'search', placeholder: 'search frames (regular expression)', spellcheck: false, autocomplete: 'off' });
  pattern.setAttribute('aria-label', 'search frames by regular expression');
  pattern.className = 'flame-pattern';
  pattern.addEventListener('input', () => store.set({ search: pattern.value }));
  const matched = element('output', 'flame-matched');
  matched.setAttribute('aria-live', 'polite');
  const bar = element('div', 'flame-controls');
  bar.append(by.label, reverse.button, idle.button, bottom.button, compare.label, side.label, pattern, matched);

  const crumbs = element('nav', 'flame-path');
  crumbs.setAttribute('aria-label', 'path of the zoomed frame');
  const note = element('p', 'flame-note');
  const legend = element('p', 'flame-legend');

  return {
    bar, crumbs, note, legend, pattern,
    /** @param {State} state @param {{compared: boolean}} shown */
    show(state, shown) {
      by.select.value = state.by;
      pressed(reverse.button, state.reverse);
      pressed(idle.button, state.idle);
      pressed(bottom.button, state.root === 'bottom');
      showBase(compare.select, state, store);
      side.select.value = state.side ?? 'new';
      side.label.hidden = !shown.compared;
      if (pattern.value !== state.search && document.activeElement !== pattern) pattern.value = state.search;
    },
    /** @param {boolean} compared @param {import('./flame_draw.js').Palette} palette */
    showLegend(compared, palette) {
      legend.replaceChildren(...(compared ? LEGEND_COMPARED : LEGEND).map(([kind, words]) => {
        const [first, many] = palette.ranges[kind];
        const colours = palette.fills.slice(first, first + many);
        const key = element('i', compared && many > 1 ? 'flame-key wide' : 'flame-key');
        if (kind === '-') colours.reverse();
        key.style.background = compared && many > 1 ? `linear-gradient(to right, ${colours.join(', ')})` : colours[0];
        const entry = element('span', '');
        entry.append(key, words);
        return entry;
      }));
    },
    /** @param {string} text @param {boolean} wrong */
    tellMatched(text, wrong) {
      if (matched.textContent !== text) matched.textContent = text;
      matched.classList.toggle('wrong', wrong);
      pattern.setAttribute('aria-invalid', String(wrong));
    },
    /** @param {string[]} names @param {(length: number) => void} zoomTo */
    showPath(names, zoomTo) {
      crumbs.replaceChildren(...path(names, zoomTo));
    },
  };
}

/** A base that was chosen by hand is an entry of its own. @param {HTMLSelectElement} select @param {State} state @param {Store} store */
function showBase(select, state, store) {
  const times = span(state.base);
  const own = /** @type {HTMLOptionElement | null} */ (select.querySelector('option[data-own]'));
  if (!times) {
    own?.remove();
    select.value = state.base;
    return;
  }
  const entry = own ?? document.createElement('option');
  entry.dataset.own = '1';
  entry.value = state.base;
  entry.textContent = `${moment(store.about(), times[0])}, ${duration(times[1] - times[0])}`;
  if (!own) select.append(entry);
  select.value = state.base;
}

/** @param {string[]} names @param {(length: number) => void} zoomTo */
function path(names, zoomTo) {
  const all = ['all', ...names];
  const begin = Math.max(1, all.length - NAMED);
  /** @type {HTMLElement[]} */
  const parts = [];
  all.forEach((name, length) => {
    if (length > 0 && length < begin) return;
    if (length === begin && begin > 1) {
      const between = element('span', 'flame-between');
      between.textContent = begin === 2 ? '› 1 more ' : `› ${begin - 1} more `;
      parts.push(between);
    }
    const part = element('button', 'flame-crumb');
    part.setAttribute('type', 'button');
    part.textContent = name;
    if (length === all.length - 1) part.setAttribute('aria-current', 'true');
    part.addEventListener('click', () => zoomTo(length));
    parts.push(part);
  });
  return parts;
}

/** @param {string} label @param {[string, string][]} options @param {(value: string) => void} choose */
function choice(label, options, choose) {
  const around = document.createElement('label');
  const select = document.createElement('select');
  for (const [value, words] of options) select.add(new Option(words, value));
  select.addEventListener('change', () => choose(select.value));
  around.append(`${label} `, select);
  return { label: around, select };
}

/** @param {string} words @param {string} title @param {(on: boolean) => void} change */
function toggle(words, title, change) {
  const button = document.createElement('button');
  button.type = 'button';
  button.textContent = words;
  button.title = title;
  button.addEventListener('click', () => change(button.getAttribute('aria-pressed') !== 'true'));
  return { button };
}

/** @param {HTMLButtonElement} button @param {boolean} on */
function pressed(button, on) {
  button.setAttribute('aria-pressed', String(on));
}

/** @param {string} tag @param {string} name @returns {HTMLElement} */
export function element(tag, name) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  return made;
}
