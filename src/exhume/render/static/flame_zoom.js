// @ts-check
// Zoom and search in a flame graph: where frames lie in a view, and which of them match. Pure functions, the same for the page
// of exhume view, for SVG files and for HTML reports.

/**
 * Depth first, parents before their children; frame 0 is the root.
 * @typedef {object} Frames
 * @property {ArrayLike<number>} start in samples, or in shares where two windows are compared
 * @property {ArrayLike<number>} width
 * @property {ArrayLike<number>} parent -1 for the root
 * @property {ArrayLike<number>} end the first frame that is not below this one
 */
/** @typedef {{from: number, to: number}} View what part of the width is shown, in the unit of the frames */
/** @typedef {{frames: number | null, share: number, error: string}} Found frames that match, null without a search; their share of what is shown; what is wrong with the expression */

/** @param {ArrayLike<number>} depth of each frame */
export function family(depth) {
  const count = depth.length;
  const parent = new Int32Array(count).fill(-1);
  const end = new Int32Array(count).fill(count);
  /** @type {number[]} */
  const open = [];
  for (let i = 0; i < count; i++) {
    while (open.length > depth[i]) end[/** @type {number} */ (open.pop())] = i;
    if (open.length) parent[i] = open[open.length - 1];
    open.push(i);
  }
  return { parent, end };
}

/** The view that a frame fills. @param {Frames} frames @param {number} zoomed @returns {View} */
export function viewOf(frames, zoomed) {
  const from = frames.start[zoomed];
  return { from, to: frames.width[zoomed] > 0 ? from + frames.width[zoomed] : from + 1 };
}

/** Where a place lies in a picture so wide: at an edge if it is outside of the view. @param {number} at @param {View} view @param {number} width */
export function across(at, view, width) {
  return Math.min(width, Math.max(0, ((at - view.from) / (view.to - view.from)) * width));
}

/** A name cut to so many letters. @param {string} name @param {number} letters */
export function shortened(name, letters) {
  if (name.length <= letters) return name;
  const all = Array.from(name);
  return all.length <= letters ? name : `${all.slice(0, letters - 1).join('')}…`;
}

/**
 * Small letters match large ones, too, unless the expression has a large one.
 * @param {string} pattern
 * @returns {{regex: RegExp | null, error: string}}
 */
export function compile(pattern) {
  if (pattern === '') return { regex: null, error: '' };
  const flags = /[A-Z]/.test(pattern.replace(/\\./g, '')) ? '' : 'i';
  try {
    return { regex: new RegExp(pattern, flags), error: '' };
  } catch (error) {
    const told = error instanceof Error ? error.message.replace(/^Invalid regular expression: /, '') : String(error);
    return { regex: null, error: `not a regular expression: ${told}` };
  }
}

/**
 * How many frames match, of those that can be seen, and their share of the zoomed frame. A match inside a match counts once.
 * @param {Frames} frames
 * @param {(frame: number) => boolean} hits
 * @param {number} zoomed
 * @returns {Found}
 */
export function matched(frames, hits, zoomed) {
  let [count, width, covered] = [0, 0, zoomed];
  // A caller of the zoomed frame that matches is around all that is shown. The root is no function.
  for (let i = zoomed; i > 0; i = frames.parent[i]) {
    if (!hits(i)) continue;
    if (i !== zoomed) count++;
    [width, covered] = [frames.width[zoomed], frames.end[zoomed]];
  }
  for (let i = Math.max(1, zoomed); i < frames.end[zoomed]; i++) {
    if (frames.width[i] <= 0 || !hits(i)) continue;
    count++;
    if (i < covered) continue;
    width += frames.width[i];
    covered = frames.end[i];
  }
  return { frames: count, share: frames.width[zoomed] > 0 ? width / frames.width[zoomed] : 0, error: '' };
}

/** What was found, in words. @param {Found} found */
export function told(found) {
  if (found.error) return found.error;
  if (found.frames === null) return '';
  if (found.frames === 0) return 'nothing matches';
  const frames = found.frames === 1 ? '1 frame' : `${found.frames.toLocaleString('en')} frames`;
  return `${(found.share * 100).toFixed(1)}% matched in ${frames}`;
}
