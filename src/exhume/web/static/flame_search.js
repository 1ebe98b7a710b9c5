// @ts-check
// Search in a flame graph: which names a regular expression matches, and what share of the samples is in them.
import { refused } from './flame_patterns.js';
import { compile, matched } from './flame_zoom.js';

/** @typedef {import('./flame_layout.js').Layout} Layout */

/** @typedef {import('./flame_zoom.js').Found & {names: Uint8Array | null}} Found 1 for each name that matches; null without a search */

// Of a longer name the begin is searched, and no longer than this over all of them.
const LOOKED_AT = 256, LONGEST_MS = 1000;
/** @type {Found} */
const NOTHING = { names: null, frames: null, share: 0, error: '' };

/**
 * @param {Layout} layout
 * @param {string} pattern
 * @param {number} [zoomed]
 * @returns {Found}
 */
export function search(layout, pattern, zoomed = 0) {
  const why = refused(pattern);
  const { regex, error } = compile(why ? '' : pattern);
  if (regex === null) return { ...NOTHING, error: why || error };
  const names = new Uint8Array(layout.names.length);
  const started = performance.now();
  for (let i = 0; i < names.length; i++) {
    names[i] = regex.test(layout.names[i].slice(0, LOOKED_AT)) ? 1 : 0;
    if (performance.now() - started > LONGEST_MS) return { ...NOTHING, error: 'it takes too long with these names' };
  }
  names[layout.name[0]] = 0;
  return { names, ...matched(layout, (frame) => names[layout.name[frame]] === 1, zoomed) };
}

/** An expression that matches this name and no other, as far as names are searched. @param {string} name */
export function exactly(name) {
  const begin = name.slice(0, LOOKED_AT).replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
  return `^${begin}${name.length > LOOKED_AT ? '' : '$'}`;
}
