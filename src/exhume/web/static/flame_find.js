// @ts-check
// Finding frames in a laid-out flame graph: by path, by place, and from one to the next.

/** @typedef {import('./flame_layout.js').Layout} Layout */

/** The names from below the root to the frame. @param {Layout} layout @param {number} frame @returns {string[]} */
export function path(layout, frame) {
  const names = [];
  for (let i = frame; i > 0; i = layout.parent[i]) names.push(layout.names[layout.name[i]]);
  return names.reverse();
}

/** The frame with this path; -1 if there is none. @param {Layout} layout @param {string[]} names */
export function find(layout, names) {
  let frame = 0;
  for (const wanted of names) {
    let child = frame + 1;
    let found = -1;
    while (child < layout.end[frame]) {
      // Of two with one name (kernel and user) the wider one.
      if (layout.names[layout.name[child]] === wanted && (found < 0 || heavier(layout, child, found))) found = child;
      child = layout.end[child];
    }
    if (found < 0) return -1;
    frame = found;
  }
  return frame;
}

/** @param {Layout} layout @param {number} one @param {number} other */
function heavier(layout, one, other) {
  return layout.value[one] + layout.base[one] > layout.value[other] + layout.base[other];
}

/** The longest beginning of the path that is there. @param {Layout} layout @param {string[]} names */
export function nearest(layout, names) {
  for (let length = names.length; length > 0; length--) {
    const frame = find(layout, names.slice(0, length));
    if (frame > 0 && layout.width[frame] > 0) return frame;
  }
  return 0;
}

/** Where in its row the first frame is that ends after `at`; an index into rowFrames. @param {Layout} layout @param {number} row @param {number} at */
export function firstInRow(layout, row, at) {
  let low = layout.rowStart[row];
  let high = layout.rowStart[row + 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    const frame = layout.rowFrames[middle];
    if (layout.start[frame] + layout.width[frame] > at) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The frame of a row at a place; -1 for none. @param {Layout} layout @param {number} row @param {number} at */
export function frameAt(layout, row, at) {
  if (row < 0 || row >= layout.rows) return -1;
  const place = firstInRow(layout, row, at);
  if (place >= layout.rowStart[row + 1]) return -1;
  const frame = layout.rowFrames[place];
  return layout.start[frame] <= at ? frame : -1;
}

/** How many rows have a frame that is at least so wide between two places. @param {Layout} layout @param {number} from @param {number} to @param {number} least */
export function rowsSeen(layout, from, to, least) {
  for (let row = layout.rows - 1; row > 0; row--) {
    for (let place = firstInRow(layout, row, from); place < layout.rowStart[row + 1]; place++) {
      const frame = layout.rowFrames[place];
      if (layout.start[frame] >= to) break;
      if (layout.width[frame] >= least) return row + 1;
    }
  }
  return 1;
}

/**
 * Where the keys lead: to the caller, the widest callee, or the neighbour of the same row.
 * @param {Layout} layout
 * @param {number} frame
 * @param {'caller' | 'callee' | 'before' | 'after'} way
 */
export function step(layout, frame, way) {
  if (way === 'caller') return Math.max(0, layout.parent[frame]);
  if (way === 'callee') return widestChild(layout, frame);
  const row = layout.depth[frame];
  const place = firstInRow(layout, row, layout.start[frame]) + (way === 'after' ? 1 : -1);
  const inRow = place >= layout.rowStart[row] && place < layout.rowStart[row + 1];
  return inRow ? layout.rowFrames[place] : frame;
}

/** @param {Layout} layout @param {number} frame */
function widestChild(layout, frame) {
  let widest = frame;
  let most = 0;
  for (let child = frame + 1; child < layout.end[frame]; child = layout.end[child]) {
    if (layout.width[child] > most) [widest, most] = [child, layout.width[child]];
  }
  return widest;
}
