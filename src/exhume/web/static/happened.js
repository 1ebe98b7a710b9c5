// @ts-check
// What the lanes below the cores show, as a list under them: log lines, waits, NIC resets and restarts of the window, for those
// who use the keyboard or do not see the picture. Each entry selects its moment.
import {between, coreName, told} from './axis.js';
import {plain} from './canvas.js';
import {count, duration} from './quantities.js';

const MOST = 200;
// Something that took no time is selected with this much around it, µs.
const AROUND = 500_000, SHORT = 1000;

/** @typedef {{from: number, to: number, text: string}} Entry */

/**
 * By time, and how many there are beside those that are listed.
 * @param {Pick<import('./api.js').Lanes, 'flags' | 'bars' | 'restarts' | 'resets'>} lanes
 * @param {import('./axis.js').Span} span
 * @param {import('./axis.js').Clock} clock
 * @returns {{entries: Entry[], more: number}}
 */
export function happened(lanes, span, clock) {
  /** @type {Entry[]} */
  const all = [
    ...lanes.flags.map(({t, severity, kind, text}) => ({from: t, to: t, text: `${severity}  ${kind}: ${text}`})),
    ...lanes.bars.flatMap(({title, spans}) => spans.map(([from, to, core, text]) => (
      {from, to, text: `${title}, ${duration(to - from)}${core >= 0 ? `, ${coreName(core)}` : ''}  ${text}`}
    ))),
    ...lanes.resets.map(({t, device, reason}) => ({from: t, to: t, text: `${device} reset${reason ? `, reason: ${reason}` : ''}`})),
    ...lanes.restarts.map(({t, unit, times}) => ({from: t, to: t, text: `${unit} restarted${times > 1 ? ` ${times} times` : ''}`})),
  ];
  const found = all.filter(({from, to}) => to >= span.from && from <= span.to).sort((a, b) => a.from - b.from || a.to - b.to);
  const entries = found.slice(0, MOST).map(({from, to, text}) => ({from, to, text: `${told(from, clock)}  ${plain(text)}`}));
  return {entries, more: found.length - entries.length};
}

/** What an entry selects. @param {Entry} entry @param {number} duration */
export function selected({from, to}, duration) {
  return to - from < SHORT ? between(from - AROUND, to + AROUND, duration) : between(from, to, duration);
}

/**
 * @param {HTMLElement} element
 * @param {import('./state.js').Store} store
 */
export function mountHappened(element, store) {
  const details = document.createElement('details'), summary = document.createElement('summary'), list = document.createElement('ol');
  details.className = 'happened';
  details.hidden = true;
  details.append(summary, list);
  element.append(details);
  /** @type {{entries: Entry[], more: number}} */
  let known = {entries: [], more: 0};
  let written = '';

  function write() {
    // What has the focus stays where it is, also while a recording grows.
    if (!details.open || list.contains(document.activeElement)) return;
    const now = JSON.stringify(known);
    if (now === written) return;
    written = now;
    const items = known.entries.map((entry) => {
      const button = document.createElement('button'), item = document.createElement('li');
      button.type = 'button';
      button.textContent = entry.text;
      button.addEventListener('click', () => {
        const span = selected(entry, store.about().duration_us);
        if (span) store.set({selFrom: span.from, selTo: span.to}, {push: true});
      });
      item.append(button);
      return item;
    });
    if (known.more) {
      const item = document.createElement('li');
      item.textContent = `and ${count(known.more)} more: zoom in`;
      items.push(item);
    }
    list.replaceChildren(...items);
  }
  details.addEventListener('toggle', write);
  list.addEventListener('focusout', () => setTimeout(write, 0));

  return {
    /** @param {import('./api.js').Lanes} lanes */
    show: (lanes) => {
      const {from, to} = store.get();
      known = happened(lanes, {from, to}, store.about());
      details.hidden = !known.entries.length;
      summary.textContent = `Log lines, waits, NIC resets and restarts in this window, as a list (${count(known.entries.length + known.more)})`;
      write();
    },
  };
}
