// @ts-check
// Search in a flame graph: which names a regular expression matches, and what share of the samples is in them.
import { refused } from './flame_patterns.js';
import {counted, percent} from './quantities.js';

/** @typedef {import('./flame_layout.js').Layout} Layout */

/**
 * @typedef {object} Found
 * @property {Uint8Array | null} names 1 for each name that matches; null without a search
 * @property {number} frames how many frames match, of those that can be seen
 * @property {number} share of what is shown (the zoomed frame), 0 to 1; a match inside a match counts once
 * @property {string} error what is wrong with the expression, or empty
 */

// Of a longer name the begin is searched, and no longer than this over all of them.
const LOOKED_AT = 256, LONGEST_MS = 1000;
/** @type {Found} */
const NOTHING = { names: null, frames: 0, share: 0, error: '' };

/**
 * Small letters match large ones, too, unless the expression has a large one.
 * @param {string} pattern
 * @returns {{regex: RegExp | null, error: string}}
 */
export function compile(pattern) {
  if (pattern === '') return { regex: null, error: '' };
  const why = refused(pattern);
  if (why) return { regex: null, error: why };
  const flags = /[A-Z]/.test(pattern.replace(/\\./g, '')) ? '' : 'i';
  try {
    return { regex: new RegExp(pattern, flags), error: '' };
  } catch (error) {
    const told = error instanceof Error ? error.message.replace(/^Invalid regular expression: /, '') : String(error);
    return { regex: null, error: `not a regular expression: ${told}` };
  }
}

/**
 * @param {Layout} layout
 * @param {string} pattern
 * @param {number} [zoomed]
 * @returns {Found}
 */
export function search(layout, pattern, zoomed = 0) {
  const { regex, error } = compile(pattern);
  if (regex === null) return { ...NOTHING, error };
  const names = new Uint8Array(layout.names.length);
  const started = performance.now();
  for (let i = 0; i < names.length; i++) {
    names[i] = regex.test(layout.names[i].slice(0, LOOKED_AT)) ? 1 : 0;
    if (performance.now() - started > LONGEST_MS) return { ...NOTHING, error: 'it takes too long with these names' };
  }
  const { frames, matched } = matches(layout, names, zoomed);
  const whole = layout.width[zoomed];
  return { names, frames, share: whole > 0 ? matched / whole : 0, error: '' };
}

/** @param {Layout} layout @param {Uint8Array} names @param {number} zoomed */
function matches(layout, names, zoomed) {
  let frames = 0;
  let matched = 0;
  let covered = zoomed;
  // A caller of the zoomed frame that matches is around all that is shown.
  for (let i = zoomed; i >= 0; i = layout.parent[i]) {
    if (names[layout.name[i]] === 0) continue;
    if (i !== zoomed) frames++;
    [matched, covered] = [layout.width[zoomed], layout.end[zoomed]];
  }
  for (let i = zoomed; i < layout.end[zoomed]; i++) {
    if (layout.width[i] <= 0 || names[layout.name[i]] === 0) continue;
    frames++;
    if (i < covered) continue;
    matched += layout.width[i];
    covered = layout.end[i];
  }
  return { frames, matched };
}

/** What was found, in words. @param {Found} found */
export function told(found) {
  if (found.error) return found.error;
  if (found.names === null) return '';
  if (found.frames === 0) return 'nothing matches';
  return `${percent(found.share, 1)} matched in ${counted(found.frames, 'frame')}`;
}

/** An expression that matches this name and no other, as far as names are searched. @param {string} name */
export function exactly(name) {
  const begin = name.slice(0, LOOKED_AT).replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
  return `^${begin}${name.length > LOOKED_AT ? '' : '$'}`;
}
