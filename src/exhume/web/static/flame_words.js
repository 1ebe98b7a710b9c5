// @ts-check
// What a flame graph says in words: the tooltip, the line for screen readers, the note below its controls.
import { real } from './axis.js';
import { change } from './flame_layout.js';
import { count, counted, duration, percent } from './quantities.js';

/** @typedef {import('./flame_layout.js').Layout} Layout */
/** @typedef {Pick<import('./api.js').About, 'has_wall' | 'real_start_ms' | 'clock'>} Clock */

/** @type {Record<string, string>} */
const KINDS = { g: '', k: 'kernel', u: 'user space', p: 'Python', j: 'made at run time', i: 'idle' };

/** With the digits that tell frames apart. @param {number} share 0 to 1 */
export function part(share) {
  return percent(share, share >= 0.9995 || share === 0 ? 0 : share < 0.01 ? 2 : 1);
}

/** What a frame is, as lines: name first. @param {Layout} layout @param {number} frame @param {number} zoomed @returns {string[]} */
export function lines(layout, frame, zoomed) {
  const kind = KINDS[layout.kind[frame]] ?? '';
  const where = [kind, layout.modules[layout.module[frame]]].filter(Boolean).join(' · ');
  const now = share(layout.value[frame], layout.total);
  const shares = [`${counted(layout.value[frame], 'sample')}, ${part(now)} of all`];
  if (zoomed > 0 && frame !== zoomed && layout.value[zoomed] > 0 && inside(layout, frame, zoomed)) {
    shares.push(`${part(layout.value[frame] / layout.value[zoomed])} of ${layout.names[layout.name[zoomed]]}`);
  }
  return [layout.names[layout.name[frame]], where, shares.join(', '), difference(layout, frame)].filter(Boolean);
}

/** How the share of a frame changed, in words. @param {Layout} layout @param {number} frame */
export function difference(layout, frame) {
  const changed = change(layout, frame);
  if (changed === null || frame === 0) return '';
  const { now, before } = changed;
  if (before === 0) return 'not there in the base';
  if (now === 0) return `only in the base: ${counted(layout.base[frame], 'sample')}, ${part(before)}`;
  const points = (now - before) * 100;
  const times = now / before;
  const often = times >= 1.1 || times <= 0.9 ? `, ${times >= 10 ? times.toFixed(0) : times.toFixed(times < 0.1 ? 2 : 1)} times its share` : '';
  return `base ${part(before)}: ${points >= 0 ? '+' : '−'}${Math.abs(points).toFixed(1)} points${often}`;
}

/** @param {number} part @param {number} whole */
function share(part, whole) {
  return whole > 0 ? part / whole : 0;
}

/** @param {Layout} layout @param {number} frame @param {number} zoomed */
function inside(layout, frame, zoomed) {
  return frame >= zoomed && frame < layout.end[zoomed];
}

/** The moment on a clock, or from the begin where no clock is known. @param {Clock} about @param {number} time µs */
export function moment(about, time) {
  if (!about.has_wall) return `+${(time / 1e6).toFixed(3)} s`;
  const at = new Date(real(about, time));
  return `${at.toLocaleTimeString('en-GB')}.${String(at.getMilliseconds()).padStart(3, '0')}`;
}

/**
 * What is shown, in one line: how many samples of how long, compared with what, what is left out.
 * @param {Layout} layout
 * @param {{from: number, to: number} | null} baseline
 * @param {{from: number, to: number}} window
 * @param {string} base as in the state
 * @param {Clock} about
 */
export function summary(layout, baseline, window, base, about) {
  const words = [`${counted(layout.total, 'sample')} of ${duration(window.to - window.from)}`];
  if (layout.compared) {
    const when = baseline ? ` from ${moment(about, baseline.from)}, ${duration(baseline.to - baseline.from)}` : '';
    words.push(`compared with ${counted(layout.baseTotal, 'sample')}${when}`);
  } else if (base === 'auto') words.push('there is no quiet time to compare with');
  else if (base !== 'off') words.push('the base has no samples');
  if (layout.leftOut) words.push(`${count(layout.leftOut)} narrow frames left out`);
  return words.join(' · ');
}
