// @ts-check
// The verdict: why the node starved in the time that is chosen, as a chain whose links lead to their evidence on the lanes.
// Judging takes a while: what was judged before stays, dimmed, until the new verdict is there.
import { isAbort } from './api.js';
import { element } from './flame_controls.js';
import { moment } from './flame_words.js';
import { span } from './state.js';
import { chain, lists } from './verdict_parts.js';
import {duration, percent} from './quantities.js';

/** @typedef {import('./state.js').Store} Store */
/** @typedef {import('./state.js').State} State */
/** @typedef {import('./api.js').Api} Api */
/** @typedef {import('./verdict_parts.js').Report} Report */
/** @typedef {import('./verdict_parts.js').Span} Span */

const PAUSE_MS = 500;
// Something that took no time is shown with this much around it, µs.
const AROUND = 500_000;
// What is less than this part of the window is a few pixels wide.
const NARROW = 50;

/** The time that is to be judged: one that was kept, the selection, or all. @param {State} state @param {number} duration */
export function judged(state, duration) {
  const kept = span(state.judged ?? '');
  if (kept && kept[0] <= 0 && kept[1] >= duration - 1) return { from: 0, to: duration, what: 'the whole recording' };
  if (kept) return { from: kept[0], to: kept[1], what: 'what was selected before' };
  if (state.selFrom !== null && state.selTo !== null) return { from: state.selFrom, to: state.selTo, what: 'the selection' };
  return { from: 0, to: duration, what: 'the whole recording' };
}

/** Whether two times are the same, to the microsecond. @param {{from: number, to: number}} one @param {{from: number, to: number}} other */
function alike(one, other) {
  return Math.round(one.from) === Math.round(other.from) && Math.round(one.to) === Math.round(other.to);
}

/**
 * What a click on evidence does to the state: the selection is that span, on that core; the window goes there if it is elsewhere, or so
 * long that hardly more than a line would be seen.
 * @param {State} state @param {Span} where @param {number} duration
 * @returns {Partial<State>}
 */
export function evidence(state, where, duration) {
  let [from, to] = [where[0], where[1]].map((time) => Math.min(duration, Math.max(0, time)));
  if (to - from < 1000) [from, to] = [Math.max(0, from - AROUND), Math.min(duration, to + AROUND)];
  const core = where[2];
  /** @type {Partial<State>} */
  const patch = { selFrom: from, selTo: to, cores: core !== null && core !== undefined && core >= 0 ? [core] : null };
  if (from < state.from || to > state.to || to - from < (state.to - state.from) / NARROW) {
    const margin = Math.max(2_000_000, (to - from) * 2);
    Object.assign(patch, { from: Math.max(0, from - margin), to: Math.min(duration, to + margin), follow: '' });
  }
  return patch;
}

/** @param {HTMLElement} host @param {Store} store @param {Api} api */
export function mountVerdict(host, store, api) {
  host.classList.add('verdict');
  const head = element('div', 'verdict-head');
  const when = element('p', 'verdict-when');
  const body = element('div', 'verdict-body');
  head.setAttribute('aria-live', 'polite');
  host.replaceChildren(head, when, body);
  let timer = 0;
  /** @type {{from: number, to: number, what: string} | null} */
  let shown = null;

  async function judge() {
    const wanted = judged(store.get(), store.about().duration_us);
    host.setAttribute('aria-busy', 'true');
    tellWhen(wanted, true);
    const started = performance.now();
    const ticking = setInterval(() => tellWhen(wanted, true, performance.now() - started), 1000);
    try {
      const report = /** @type {Report} */ (await api.verdict(wanted.from, wanted.to));
      shown = wanted;
      show(report);
      host.removeAttribute('aria-busy');
      tellWhen(wanted, false);
    } catch (error) {
      if (isAbort(error)) return;
      host.removeAttribute('aria-busy');
      shown = null;
      head.replaceChildren(words('p', 'verdict-failed', error instanceof Error ? error.message : String(error)));
      body.replaceChildren();
      tellWhen(wanted, false);
    } finally {
      clearInterval(ticking);
    }
  }

  /** @param {{from: number, to: number, what: string}} time @param {boolean} busy @param {number} [spent] ms */
  function tellWhen(time, busy, spent = 0) {
    const about = store.about();
    const told = `${time.what}, ${moment(about, time.from)} to ${moment(about, time.to)} (${duration(time.to - time.from)})`;
    const seconds = spent >= 2000 ? ` ${duration(spent * 1000)} so far` : '';
    when.textContent = busy ? `Judging ${told} …${seconds}` : `Verdict of ${told}. `;
    if (busy) return;
    const state = store.get();
    const selected = state.selFrom !== null;
    if (state.judged && selected) when.append(button('Judge the selection', () => store.set({ judged: '' }, { push: true })));
    if (!state.judged && selected) {
      when.append(button('Judge the whole recording', () => store.set({ judged: `0-${Math.round(about.duration_us)}` }, { push: true })));
    }
    if (about.live) when.append(' ', button('Judge again', () => void judge()));
  }

  /** @param {Report} report */
  function show(report) {
    const { verdict, health } = report;
    const known = verdict.cause !== null || health === 'healthy';
    const badge = words('strong', `verdict-badge ${known ? health : 'unknown'}`, known ? health.toUpperCase() : 'UNKNOWN CAUSE');
    const headline = words('h3', 'verdict-headline', verdict.summary);
    const sure = words('span', 'verdict-sure', verdict.cause === null ? '' : `confidence ${percent(verdict.confidence)}`);
    head.replaceChildren(badge, headline, sure);
    body.replaceChildren(chain(report, go), ...lists(report));
  }

  /** Goes to a piece of evidence, and lets the lanes show all of its kind. @param {Span} where @param {Span[]} all */
  function go(where, all) {
    const state = store.get();
    const kept = shown === null ? '' : `${Math.round(shown.from)}-${Math.round(shown.to)}`;
    store.set({ ...evidence(state, where, store.about().duration_us), judged: kept }, { push: true });
    dispatchEvent(new CustomEvent('exhume:flash', { detail: { spans: [where, ...all.filter((one) => one !== where)] } }));
  }

  store.subscribe((state, before) => {
    const [next, last] = [state, before].map((one) => judged(one, store.about().duration_us));
    // A live recording has grown since it was judged: the time that a link keeps is that of the verdict that is shown.
    const there = shown !== null && !host.hasAttribute('aria-busy') && alike(next, shown);
    if (there) clearTimeout(timer);
    const same = there || alike(next, last);
    if (same && shown !== null) {
      if (!host.hasAttribute('aria-busy')) tellWhen({ ...shown, what: next.what }, false);
      return;
    }
    if (same) return;
    clearTimeout(timer);
    timer = setTimeout(judge, PAUSE_MS);
  });
  void judge();
}

/** @param {string} tag @param {string} name @param {string} text */
function words(tag, name, text) {
  const made = element(tag, name);
  made.textContent = text;
  return made;
}

/** @param {string} label @param {() => void} run */
function button(label, run) {
  const made = words('button', 'verdict-button', label);
  made.setAttribute('type', 'button');
  made.addEventListener('click', run);
  return made;
}
