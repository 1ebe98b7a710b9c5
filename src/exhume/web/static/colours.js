// @ts-check
// The colours of the page for canvases: read from the style sheet, so that light and dark are told in one place. The palette
// is that of the reports (Okabe and Ito, and ramps of one hue by lightness), which the colour-blind tell apart.
import {signal} from './state.js';

/** @typedef {[number, number, number]} Rgb */

/** Counts up when light or dark changes: whoever draws draws again. */
export const themed = signal(0);
/** @type {Record<string, string>} */
let known = {};

/**
 * Colours by their name in the style sheet: `theme().system`, `theme()['f-kernel']`.
 * @returns {Record<string, string>}
 */
export function theme() {
  return new Proxy(known, {
    get: (kept, name) => {
      const key = String(name);
      return (kept[key] ??= getComputedStyle(document.documentElement).getPropertyValue(`--${key}`).trim() || '#888888');
    },
  });
}

/** @param {'auto' | 'light' | 'dark'} wanted */
export function applyTheme(wanted) {
  const root = document.documentElement;
  if (wanted === 'auto') delete root.dataset.theme;
  else root.dataset.theme = wanted;
  known = {};
  themed.set(themed.get() + 1);
}

/** Follows the system's choice while the page has none of its own. */
export function followSystem() {
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    known = {};
    themed.set(themed.get() + 1);
  });
}

/** @param {string} text #rrggbb @returns {Rgb} */
export function rgb(text) {
  const number = parseInt(text.slice(1), 16);
  return [(number >> 16) & 255, (number >> 8) & 255, number & 255];
}

/** As a pixel of ImageData read as 32 bits: little-endian, opaque. @param {Rgb} colour */
export function pixel([red, green, blue]) {
  return ((255 << 24) | (Math.round(blue) << 16) | (Math.round(green) << 8) | Math.round(red)) >>> 0;
}

/**
 * 256 pixels from none to most. None is the ground; one is already told apart from it.
 * @param {string[]} stops #rrggbb, from ground to most
 */
export function ramp(stops) {
  const colours = stops.map(rgb);
  const found = new Uint32Array(256);
  for (let i = 0; i < 256; i++) {
    // The first steps are taken fast: a single sample must be seen.
    const at = i === 0 ? 0 : (0.1 + 0.9 * (i / 255)) * (colours.length - 1);
    const low = Math.min(colours.length - 2, Math.floor(at)), part = at - low;
    found[i] = pixel(mixed(colours[low], colours[low + 1], part));
  }
  return found;
}

/** @param {Rgb} one @param {Rgb} other @param {number} part of the other @returns {Rgb} */
export function mixed(one, other, part) {
  return [one[0] + (other[0] - one[0]) * part, one[1] + (other[1] - one[1]) * part, one[2] + (other[2] - one[2]) * part];
}

/** The ramp of the heat map: warm for all samples, cool for a family of symbols. @param {boolean} family */
export function heatStops(family) {
  const name = family ? 'cool' : 'warm';
  const colours = theme();
  return ['ground', `${name}1`, `${name}2`, `${name}3`, `${name}4`].map((one) => colours[one]);
}
