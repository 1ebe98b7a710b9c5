// @ts-check
// Paints a laid-out flame graph on a canvas: only rows that can be seen, only frames that are wide enough, text where it fits.
// All frames of a row are equally high: one line of pixels is made for them and copied downwards. That takes as long for 30,000
// frames as for 300, also where no graphics card helps; a rectangle each took 30 ms and more.
import { firstInRow } from './flame_find.js';
import { change } from './flame_layout.js';
import { across, shortened } from './flame_zoom.js';

/** @typedef {import('./flame_layout.js').Layout} Layout */
/** @typedef {import('./flame_zoom.js').View} View */

/**
 * @typedef {object} Palette
 * @property {string[]} fills
 * @property {string[]} inks the colour of text on each of them
 * @property {Record<string, [number, number]>} ranges of each kind: its first fill, and how many
 * @property {string} paper
 * @property {string} outline
 */

/**
 * @typedef {object} Picture
 * @property {Layout} layout
 * @property {Uint8Array} fill of each frame its place in the palette
 * @property {Palette} palette
 * @property {View} view
 * @property {number} width in CSS pixels
 * @property {number} height
 * @property {number} ratio pixels of the canvas to a CSS pixel
 * @property {number} scrolled pixels above what is seen
 * @property {number} rows how many are shown
 * @property {'top' | 'bottom'} root
 * @property {number} zoomed
 * @property {number} focused or -1
 * @property {Uint8Array | null} matches by name
 */

export const ROW = 18;
const FONT = '12px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace';
// A frame narrower than half a pixel cannot be seen; neighbours of that kind are drawn as one.
const NARROWEST = 0.5;
const FEWEST_LETTERS = 3;
const FAINT = 0.55;
/** @type {[string, string][]} */
const KINDS = [['k', 'kernel'], ['u', 'user'], ['p', 'python'], ['j', 'jit'], ['g', 'group'], ['i', 'idle'],
  ['+', 'more'], ['-', 'less'], ['=', 'same'], ['m', 'match']];
// A change of less than a tenth is none.
const NO_CHANGE = 0.1;

/** The colours of flame.css. @param {CSSStyleDeclaration} style @returns {Palette} */
export function readPalette(style) {
  /** @type {Palette} */
  const palette = { fills: [], inks: [], ranges: {}, paper: '#fff', outline: '#000' };
  const list = (/** @type {string} */ name) => style.getPropertyValue(`--flame-${name}`).trim().split(/\s+/);
  const [dark, light] = [list('ink-dark')[0], list('ink-light')[0]];
  for (const [letter, name] of KINDS) {
    const colours = list(name);
    palette.ranges[letter] = [palette.fills.length, colours.length];
    palette.fills.push(...colours);
  }
  palette.inks = palette.fills.map((fill) => (brightness(fill) > 0.18 ? dark : light));
  palette.paper = list('paper')[0];
  palette.outline = list('outline')[0];
  return palette;
}

/** Relative luminance of #rrggbb, 0 to 1 (WCAG 2). @param {string} colour */
export function brightness(colour) {
  const [red, green, blue] = parts(colour).map((part) => (part <= 10 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** The same name has the same shade in every picture (FNV-1a). @param {string} text */
function hash(text) {
  let sum = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) sum = Math.imul(sum ^ text.charCodeAt(i), 0x01000193);
  return sum >>> 0;
}

/** Of each frame its colour: by who and what it is, or in a comparison by how its share changed. @param {Layout} layout @param {Palette} palette */
export function colour(layout, palette) {
  const fill = new Uint8Array(layout.count);
  const byName = layout.names.map(hash);
  const byModule = layout.modules.map(hash);
  for (let i = 0; i < layout.count; i++) {
    const kind = layout.kind[i];
    const [first, many] = palette.ranges[kind] ?? palette.ranges.u;
    fill[i] = first + ((kind === 'k' ? byName[layout.name[i]] : byModule[layout.module[i]]) % many);
    if (!layout.compared) continue;
    const relative = change(layout, i)?.relative ?? 0;
    const [begin, steps] = palette.ranges[relative > 0 ? '+' : '-'];
    const far = (Math.abs(relative) - NO_CHANGE) / (1 - NO_CHANGE);
    fill[i] = far <= 0 ? palette.ranges['='][0] : begin + Math.min(steps - 1, Math.floor(far * steps));
  }
  return fill;
}

/** The y of a row. @param {Pick<Picture, 'root' | 'rows' | 'scrolled'>} picture @param {number} row */
export function rowTop(picture, row) {
  return (picture.root === 'top' ? row : picture.rows - 1 - row) * ROW - picture.scrolled;
}

/** The row at a y. @param {Pick<Picture, 'root' | 'rows' | 'scrolled'>} picture @param {number} y */
export function rowAt(picture, y) {
  const at = Math.floor((y + picture.scrolled) / ROW);
  return picture.root === 'top' ? at : picture.rows - 1 - at;
}

/** Pixels that are written again and again, of each canvas. @type {WeakMap<object, ImageData>} */
const images = new WeakMap();

/** @typedef {{name: string, left: number, y: number, width: number, ink: string}} Label */

/** @param {CanvasRenderingContext2D} context @param {Picture} picture @returns {number} how many frames were drawn */
export function paint(context, picture) {
  const { ratio } = picture;
  const [wide, high] = [Math.max(1, Math.round(picture.width * ratio)), Math.max(1, Math.round(picture.height * ratio))];
  let image = images.get(context);
  if (image === undefined || image.width !== wide || image.height !== high) image = context.createImageData(wide, high);
  images.set(context, image);
  const pixels = new Uint32Array(image.data.buffer);
  const shades = shadesOf(picture.palette);
  pixels.fill(shades.paper);
  context.font = FONT;
  context.textBaseline = 'middle';
  const letter = context.measureText('mmmmmmmmmm').width / 10;
  const first = Math.max(0, Math.floor(picture.scrolled / ROW));
  const last = Math.min(picture.rows, Math.ceil((picture.scrolled + picture.height) / ROW));
  /** @type {Label[]} */
  const labels = [];
  let drawn = 0;
  for (let place = first; place < last; place++) {
    const row = picture.root === 'top' ? place : picture.rows - 1 - place;
    if (row >= picture.layout.rows) continue;
    const y = rowTop(picture, row);
    const [top, bottom] = [Math.max(0, Math.round(y * ratio)), Math.min(high, Math.round((y + ROW - 1) * ratio))];
    if (bottom <= top) continue;
    const line = pixels.subarray(top * wide, (top + 1) * wide);
    drawn += fillLine(line, picture, row, shades, letter, labels);
    for (let copied = top + 1; copied < bottom; copied++) pixels.copyWithin(copied * wide, top * wide, (top + 1) * wide);
  }
  context.putImageData(image, 0, 0);
  for (const label of labels) write(context, label, letter);
  if (picture.focused >= 0) outline(context, picture, picture.focused);
  return drawn;
}

/**
 * The frames of a row as one line of pixels, and what is to be written on them.
 * @param {Uint32Array} line @param {Picture} picture @param {number} row @param {{full: Uint32Array, faint: Uint32Array, paper: number}} shades
 * @param {number} letter @param {Label[]} labels
 */
function fillLine(line, picture, row, shades, letter, labels) {
  const { layout, view, palette, fill, matches, width, ratio } = picture;
  const { start, width: widths, rowFrames, rowStart } = layout;
  const above = row < layout.depth[picture.zoomed];
  const colours = above ? shades.faint : shades.full;
  const matched = palette.ranges.m[0];
  const gap = Math.max(1, Math.round(ratio));
  const enough = FEWEST_LETTERS * letter + 6;
  let [drawn, filled] = [0, 0];
  for (let place = firstInRow(layout, row, view.from); place < rowStart[row + 1]; place++) {
    const frame = rowFrames[place];
    if (start[frame] >= view.to) break;
    const left = across(start[frame], view, width);
    const right = across(start[frame] + widths[frame], view, width);
    const found = matches !== null && matches[layout.name[frame]] === 1;
    const paintedAs = found ? matched : fill[frame];
    const begin = Math.round(left * ratio);
    if (right - left < NARROWEST) {
      if (begin < filled && !found) continue; // inside of a pixel that is filled already
      line[begin] = colours[paintedAs];
      filled = begin + 1;
    } else {
      const end = Math.max(begin + 1, Math.round(right * ratio));
      line.fill(colours[paintedAs], begin, end - begin > 2 * gap ? end - gap : end);
      filled = end;
      if (right - left >= enough) {
        labels.push({ name: layout.names[layout.name[frame]], left, y: rowTop(picture, row), width: right - left, ink: above ? palette.outline : palette.inks[paintedAs] });
      }
    }
    drawn++;
  }
  return drawn;
}

/** Colours as they stand in memory; faint ones for callers of what is zoomed. @param {Palette} palette */
function shadesOf(palette) {
  const paper = parts(palette.paper);
  const packed = (/** @type {number[]} */ [red, green, blue]) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  const full = Uint32Array.from(palette.fills, (fill) => packed(parts(fill)));
  const faint = Uint32Array.from(palette.fills, (fill) => packed(parts(fill).map((part, i) => Math.round(part * FAINT + paper[i] * (1 - FAINT)))));
  return { full, faint, paper: packed(paper) };
}

/** @param {string} colour #rrggbb */
function parts(colour) {
  return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
}

/** @param {CanvasRenderingContext2D} context @param {Label} label @param {number} letter */
function write(context, { name, left, y, width, ink }, letter) {
  const text = shortened(name, Math.floor((width - 6) / letter));
  context.fillStyle = ink;
  // Letters of other scripts may be wider than ours: the browser presses them together.
  context.fillText(text, left + 3, y + (ROW - 1) / 2 + 0.5, width - 5);
}

/** @param {CanvasRenderingContext2D} context @param {Picture} picture @param {number} frame */
function outline(context, picture, frame) {
  const at = box(picture, frame);
  if (at === null) return;
  context.strokeStyle = picture.palette.outline;
  context.lineWidth = 2;
  context.strokeRect(at.left + 1, at.top + 1, Math.max(2, at.width - 3), ROW - 3);
}

/** Where a frame is on the canvas; null where it is not seen. @param {Picture} picture @param {number} frame */
export function box(picture, frame) {
  const { layout, view, width } = picture;
  const left = across(layout.start[frame], view, width);
  const right = across(layout.start[frame] + layout.width[frame], view, width);
  if (layout.width[frame] <= 0) return null;
  return { left, width: Math.max(1, right - left), top: rowTop(picture, layout.depth[frame]) };
}
