// @ts-check
// The one time axis: what of it is shown, where a moment lies on the screen, and how moments are told. Pure functions on
// microseconds from the begin of the recording and on CSS pixels, so that every picture agrees with every other.

/** @typedef {{from: number, to: number}} Span */
/** @typedef {{left: number, width: number}} Plot where the axis lies inside of a picture, CSS pixels */
/** @typedef {Pick<import('./api.js').About, 'real_start_ms' | 'has_wall' | 'start_ns' | 'clock'>} Clock */

export const GUTTER = 128;
export const MARGIN = 14;
/** Nothing is sampled so often that less would show more. */
export const SHORTEST = 1000;
const SECOND = 1_000_000;
const STEPS = [
  ...[1e3, 1e4, 1e5].flatMap((unit) => [unit, 2 * unit, 5 * unit]),
  ...[1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400].map((s) => s * SECOND),
];

/** @param {number} width of the whole picture @returns {Plot} */
export function plotOf(width) {
  return {left: GUTTER, width: Math.max(1, width - GUTTER - MARGIN)};
}

/** @param {number} time @param {Span} span @param {Plot} plot */
export function toX(time, span, plot) {
  return plot.left + ((time - span.from) / (span.to - span.from)) * plot.width;
}

/** @param {number} x @param {Span} span @param {Plot} plot */
export function toTime(x, span, plot) {
  return span.from + ((x - plot.left) / plot.width) * (span.to - span.from);
}

/**
 * A span inside of the recording, as long as it was if that is possible.
 * @param {Span} span
 * @param {number} duration
 * @returns {Span}
 */
export function inside(span, duration) {
  const length = Math.min(Math.max(span.to - span.from, Math.min(SHORTEST, duration)), duration);
  const from = Math.min(Math.max(0, span.from), duration - length);
  return {from: Math.round(from), to: Math.round(from + length)};
}

/**
 * Zooms so that a moment stays where it is on the screen. A factor below one shows less.
 * @param {Span} span
 * @param {number} around
 * @param {number} factor
 * @param {number} duration
 * @returns {Span}
 */
export function zoomed(span, around, factor, duration) {
  const length = Math.min(duration, Math.max(SHORTEST, (span.to - span.from) * factor));
  const share = (around - span.from) / (span.to - span.from);
  const from = around - share * length;
  return inside({from, to: from + length}, duration);
}

/** @param {Span} span @param {number} by µs @param {number} duration @returns {Span} */
export function panned(span, by, duration) {
  return inside({from: span.from + by, to: span.to + by}, duration);
}

/** The same length, at the end of the recording. @param {Span} span @param {number} duration @returns {Span} */
export function atEnd(span, duration) {
  return inside({from: duration - (span.to - span.from), to: duration}, duration);
}

/**
 * From two moments in any order, cut to the recording; null if nothing is left.
 * @param {number} one
 * @param {number} other
 * @param {number} duration
 * @returns {Span | null}
 */
export function between(one, other, duration) {
  const from = Math.round(Math.max(0, Math.min(one, other))), to = Math.round(Math.min(duration, Math.max(one, other)));
  return to > from ? {from, to} : null;
}

/**
 * What to show of something, with time before and after it: as much as the reports have.
 * @param {Span} span
 * @param {number} duration
 * @returns {Span}
 */
export function around(span, duration) {
  const length = span.to - span.from;
  return inside({from: span.from - Math.max(2 * SECOND, length), to: span.to + Math.max(2 * SECOND, length / 2)}, duration);
}

/**
 * What is fetched: a part more on either side, so that a pan has something to show at once.
 * @param {Span} span
 * @param {number} duration
 * @returns {Span}
 */
export function widened(span, duration) {
  const more = (span.to - span.from) / 4;
  return {from: Math.max(0, Math.floor(span.from - more)), to: Math.min(duration, Math.ceil(span.to + more))};
}

/**
 * How much of two spans is common to both: 1 if they are the same, 0 if they do not touch.
 * @param {Span} one
 * @param {Span} other
 */
export function alike(one, other) {
  const common = Math.min(one.to, other.to) - Math.max(one.from, other.from);
  return common <= 0 ? 0 : common / (Math.max(one.to, other.to) - Math.min(one.from, other.from));
}

/**
 * Round moments for a scale, at least so many pixels apart; round by the reader's clock where there is one.
 * @param {Span} span
 * @param {number} width
 * @param {Clock} clock
 * @param {number} apart
 * @returns {{time: number, label: string}[]}
 */
export function ticks(span, width, clock, apart = 96) {
  const least = ((span.to - span.from) / Math.max(1, width)) * apart;
  const step = STEPS.find((one) => one >= least) ?? Math.ceil(least / (86400 * SECOND)) * 86400 * SECOND;
  /** @type {{time: number, label: string}[]} */
  const found = [];
  const edges = [span.from, ...wasSet(clock).filter((time) => time > span.from && time <= span.to), Infinity];
  edges.slice(1).forEach((end, part) => {
    const zero = shift(clock, edges[part]);
    for (let at = Math.ceil((edges[part] + zero) / step) * step; at - zero < end && at <= span.to + zero; at += step) {
      // Where the clock was set two may come close.
      if (found.length && at - zero - found[found.length - 1].time < least) continue;
      found.push({time: at - zero, label: told(at - zero, clock, step)});
    }
  });
  return found;
}

/** Where one reading of the clock on the wall becomes nearer than the one before it. @param {Pick<Clock, 'clock'>} clock */
function wasSet({clock = []}) {
  return clock.slice(1).map(([time], before) => (clock[before][0] + time) / 2);
}

/**
 * The time of day, ms: by the nearest reading of the clock on the wall, which may have been set in between.
 * @param {Pick<Clock, 'real_start_ms' | 'clock'>} clock
 * @param {number} time
 */
export function real(clock, time) {
  return realStart(clock, time) + time / 1000;
}

/** When it would have begun by the clock as it was then. @param {Pick<Clock, 'real_start_ms' | 'clock'>} clock @param {number} time */
function realStart(clock, time) {
  const known = clock.clock ?? [];
  if (known.length < 2) return clock.real_start_ms;
  const [at, ms] = known[wasSet(clock).filter((set) => set <= time).length];
  return ms - at / 1000;
}

/** What to add to a moment so that its rest by a day is the time of day. @param {Clock} clock @param {number} time */
function shift(clock, time) {
  if (!clock.has_wall) return Number(BigInt(clock.start_ns) / 1000n);
  return Math.round(realStart(clock, time) * 1000) - new Date(real(clock, time)).getTimezoneOffset() * 60 * SECOND;
}

/** @param {number} number @param {number} digits */
const padded = (number, digits = 2) => String(number).padStart(digits, '0');

/**
 * A moment: by the clock on the wall, or in seconds as dmesg shows them where nobody knows the time of day. As exact as a
 * step of the scale needs.
 * @param {number} time
 * @param {Clock} clock
 * @param {number} step
 */
export function told(time, clock, step = 1000) {
  const digits = step >= SECOND ? 0 : Math.min(6, Math.max(0, 6 - Math.floor(Math.log10(step))));
  const zero = shift(clock, time);
  const at = Math.round(zero + time);
  if (!clock.has_wall) return (at / SECOND).toFixed(digits || (step >= SECOND ? 0 : 3));
  const ofDay = ((at % (86400 * SECOND)) + 86400 * SECOND) % (86400 * SECOND);
  const whole = Math.floor(ofDay / SECOND);
  const text = `${padded(Math.floor(whole / 3600))}:${padded(Math.floor(whole / 60) % 60)}`;
  if (step >= 60 * SECOND && whole % 60 === 0) return text;
  const seconds = `${text}:${padded(whole % 60)}`;
  return digits ? `${seconds}.${padded(ofDay % SECOND, 6).slice(0, digits)}` : seconds;
}

/** The day of a moment, or nothing where nobody knows it. @param {number} time @param {Clock} clock */
export function day(time, clock) {
  if (!clock.has_wall) return '';
  const date = new Date(real(clock, time));
  return `${date.getFullYear()}-${padded(date.getMonth() + 1)}-${padded(date.getDate())}`;
}

/** A core for people; of some samples nobody wrote down theirs. @param {number} core */
export function coreName(core) {
  return `core ${core < 0 ? 'unknown' : core}`;
}

/**
 * The parts of a window that an answer says nothing of.
 * @param {Span | null} covers
 * @param {Span} shown
 * @returns {Span[]}
 */
export function uncovered(covers, shown) {
  if (!covers) return [shown];
  const before = {from: shown.from, to: Math.min(shown.to, covers.from)}, after = {from: Math.max(shown.from, covers.to), to: shown.to};
  return [before, after].filter(({from, to}) => to > from);
}

/**
 * Rows for labels, so that none lies on another: for each its row, or -1 where there is no room. Earlier ones go first.
 * @param {{left: number, right: number}[]} labels
 * @param {number} rows
 * @returns {number[]}
 */
export function stacked(labels, rows) {
  /** @type {{left: number, right: number}[][]} */
  const taken = Array.from({length: rows}, () => []);
  return labels.map((label) => {
    const row = taken.findIndex((others) => others.every((one) => label.left >= one.right || label.right <= one.left));
    if (row >= 0) taken[row].push(label);
    return row;
  });
}
