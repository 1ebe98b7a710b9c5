// @ts-check
// The tree of a flame graph as typed arrays: where each frame begins, how wide it is, who called it.
// Pure functions; widths are in samples, or in shares where two times are compared.
import { family } from './flame_zoom.js';

/**
 * The answer of /api/flame: columns of a tree in depth-first order, the root not among them.
 * @typedef {object} FlameData
 * @property {number} total
 * @property {number} base_total 0 where nothing is compared
 * @property {string[]} names
 * @property {string[]} modules
 * @property {number[]} depth
 * @property {number[]} name
 * @property {number[]} module
 * @property {string} kind one letter a node: g group, k kernel, u user, p Python, j made at run time, i idle
 * @property {number[]} value
 * @property {number[]} base
 * @property {number} left_out
 * @property {{from: number, to: number, how?: string} | null} [baseline]
 */

/** @typedef {'new' | 'base' | 'both'} Side what widths mean where two times are compared */

/**
 * Frame 0 is the root, "all"; every parent comes before its children.
 * @typedef {object} Layout
 * @property {number} count
 * @property {number} rows
 * @property {Side} side
 * @property {boolean} compared
 * @property {number} total samples, without what is hidden
 * @property {number} baseTotal likewise
 * @property {string[]} names sanitised for showing
 * @property {string[]} modules
 * @property {Int32Array} name
 * @property {Int32Array} module
 * @property {string} kind
 * @property {Uint16Array} depth
 * @property {Int32Array} parent -1 for the root
 * @property {Int32Array} end the first frame that is not below this one
 * @property {Float64Array} start
 * @property {Float64Array} width
 * @property {Float64Array} value
 * @property {Float64Array} base
 * @property {Int32Array} rowStart where a row begins in rowFrames
 * @property {Int32Array} rowFrames frames by row, from left to right
 * @property {number} leftOut
 * @property {number} hiddenCount
 */

// Control characters, and those that turn the direction of writing: names come from other people's programs.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const LONGEST_NAME = 1000;
const DEEPEST = 65000;

/** @param {string} name */
export function shown(name) {
  const cut = name.length > LONGEST_NAME ? name.slice(0, LONGEST_NAME) + '…' : name;
  return cut.replace(UNSEEN, '\ufffd');
}

/**
 * @param {FlameData} data
 * @param {{side?: Side, hide?: string[]}} [options]
 * @returns {Layout}
 */
export function layOut(data, options = {}) {
  const count = data.depth.length + 1;
  const compared = data.base_total > 0;
  const side = compared ? (options.side ?? 'new') : 'new';
  const names = data.names.map(shown);
  const rootName = names.push('all') - 1;
  const modules = data.modules.map(shown);
  const noModule = modules.push('') - 1;
  const name = new Int32Array(count);
  const module = new Int32Array(count);
  const depth = new Uint16Array(count);
  const value = new Float64Array(count);
  const base = new Float64Array(count);
  name[0] = rootName;
  module[0] = noModule;
  value[0] = data.total;
  base[0] = data.base_total;
  for (let i = 1; i < count; i++) {
    name[i] = data.name[i - 1];
    module[i] = data.module[i - 1];
    depth[i] = Math.min(DEEPEST, data.depth[i - 1] + 1);
    value[i] = data.value[i - 1];
    base[i] = data.base[i - 1] ?? 0;
  }
  const { parent, end } = family(depth);
  const layout = {
    count, side, compared, names, modules, name, module, kind: 'g' + data.kind, depth, parent, end, value, base,
    rows: 0, total: 0, baseTotal: 0, start: new Float64Array(count), width: new Float64Array(count),
    rowStart: new Int32Array(1), rowFrames: new Int32Array(0), leftOut: data.left_out, hiddenCount: 0,
  };
  if (options.hide?.length) hide(layout, options.hide);
  layout.total = value[0];
  layout.baseTotal = base[0];
  place(layout);
  fillRows(layout);
  return layout;
}

/** Takes out every branch that begins with one of the names: its samples are gone from its callers, too. @param {Layout} layout @param {string[]} names */
function hide(layout, names) {
  const { value, base, parent, end, count } = layout;
  const unwanted = layout.names.map((name) => names.includes(name));
  for (let i = 1; i < count; i++) {
    if (!unwanted[layout.name[i]]) continue;
    const [gone, goneBase] = [value[i], base[i]];
    for (let caller = parent[i]; caller >= 0; caller = parent[caller]) {
      value[caller] -= gone;
      base[caller] -= goneBase;
    }
    value.fill(0, i, end[i]);
    base.fill(0, i, end[i]);
    layout.hiddenCount++;
    i = end[i] - 1;
  }
}

/** @param {Layout} layout */
function place(layout) {
  const { count, depth, start, width, value, base, side } = layout;
  const scale = layout.total > 0 ? 1 / layout.total : 0;
  const baseScale = layout.baseTotal > 0 ? 1 / layout.baseTotal : 0;
  /** @type {number[]} */
  const next = [0];
  for (let i = 0; i < count; i++) {
    const row = depth[i];
    width[i] = side === 'new' ? value[i] : side === 'base' ? base[i] : (value[i] * scale + base[i] * baseScale) / 2;
    start[i] = next[row];
    next[row] += width[i];
    next[row + 1] = start[i];
  }
}

/** @param {Layout} layout */
function fillRows(layout) {
  const { count, depth, width } = layout;
  let rows = 1;
  for (let i = 0; i < count; i++) if (width[i] > 0 && depth[i] >= rows) rows = depth[i] + 1;
  const rowStart = new Int32Array(rows + 1);
  for (let i = 0; i < count; i++) if (width[i] > 0) rowStart[depth[i] + 1]++;
  for (let row = 0; row < rows; row++) rowStart[row + 1] += rowStart[row];
  const at = rowStart.slice();
  const rowFrames = new Int32Array(rowStart[rows]);
  for (let i = 0; i < count; i++) if (width[i] > 0) rowFrames[at[depth[i]]++] = i;
  layout.rows = rows;
  layout.rowStart = rowStart;
  layout.rowFrames = rowFrames;
}

// A frame that one or two samples hit is on one side only by chance: its change counts as if so many more were on both sides.
const BY_CHANCE = 3;

/**
 * How the share of a frame changed, -1 (gone) over 0 to 1 (new), and both shares. Null where nothing is compared.
 * @param {Layout} layout
 * @param {number} frame
 */
export function change(layout, frame) {
  if (!layout.compared) return null;
  const now = layout.total > 0 ? layout.value[frame] / layout.total : 0;
  const before = layout.baseTotal > 0 ? layout.base[frame] / layout.baseTotal : 0;
  const chance = BY_CHANCE / Math.max(1, Math.min(layout.total, layout.baseTotal || layout.total));
  return { now, before, relative: (now - before) / (Math.max(now, before) + chance) };
}
