// @ts-check
// The strips of the cores: the oddest are tall and show the shares of their time stacked, the others are thin and show them
// mixed, so that 96 cores are seen at once. Cells are drawn once, to a buffer; a pan or a zoom only moves that.
import {alike, coreName} from './axis.js';
import {bytes} from './api.js';
import {buffer, laneName, SMALL} from './canvas.js';
import {pixel, rgb, theme} from './colours.js';

/** @typedef {{core: number, top: number, height: number, tall: boolean}} Row */
/** @typedef {Uint8Array[]} Shares by state, a byte a column */
export const STATES = ['system', 'softirq', 'user', 'steal'];
/** What a byte means: a share of MOST, or that nothing is known. */
export const MOST = 254, UNKNOWN = 255;
const ALL_TALL = 16, SOME_TALL = 8;
const TALL = 18, THIN = 4, THINNEST = 3, FEW_THIN = 32;

/**
 * In which order cores are shown: by oddness, those that are filtered for first. While a window moves a little the order
 * stays, or strips would jump under the eye.
 * @param {import('./api.js').CoreStrip[]} strips the oddest first; of those as odd as one another the server knows which
 * @param {number[] | null} wanted
 * @param {{order: number[], span: import('./axis.js').Span} | null} before
 * @param {import('./axis.js').Span} span
 */
export function ordered(strips, wanted, before, span) {
  const kept = before !== null && before.order.length === strips.length && alike(before.span, span) > 0.25 ? before : null;
  const rank = new Map(kept?.order.map((core, at) => [core, at]));
  const order = strips.map((strip) => strip.core);
  if (kept) order.sort((a, b) => (rank.get(a) ?? 1e9) - (rank.get(b) ?? 1e9));
  const first = wanted ? order.filter((core) => wanted.includes(core)) : [];
  return {
    shown: [...first, ...order.filter((core) => !first.includes(core))],
    kept: kept ?? {order, span},
  };
}

/**
 * The order for an answer. One that is not whole yet says little of which core is odd, and a window that is all of a recording
 * grows with it: neither keeps an order, or the core with the incident stayed where the first seconds put it.
 * @param {Pick<import('./api.js').Lanes, 'cores' | 'ready'>} lanes
 * @param {import('./state.js').State} state
 * @param {{order: number[], span: import('./axis.js').Span} | null} before
 */
export function orderOf(lanes, state, before) {
  const whole = (lanes.ready ?? 1) >= 1, {cores, follow, from, to} = state;
  const {shown, kept} = ordered(lanes.cores, cores, whole && follow !== 'whole' ? before : null, {from, to});
  return {shown, kept: whole ? kept : null};
}

/**
 * Where each strip lies.
 * @param {number[]} order
 * @param {number} top
 * @returns {{rows: Row[], bottom: number}}
 */
export function layout(order, top) {
  const tall = order.length <= ALL_TALL ? order.length : SOME_TALL;
  /** @type {Row[]} */
  const rows = [];
  order.forEach((core, at) => {
    if (at === tall) top += 4;
    const crowded = order.length - tall > FEW_THIN;
    const height = at < tall ? TALL : crowded ? THINNEST : THIN;
    rows.push({core, top, height, tall: at < tall});
    top += height + (at < tall ? 2 : crowded ? 0 : 1);
  });
  return {rows, bottom: top};
}

/**
 * The shares of every core, decoded.
 * @param {import('./api.js').CoreStrip[]} strips
 * @returns {Map<number, Shares>}
 */
export function decoded(strips) {
  return new Map(strips.map((strip) => [strip.core, [strip.system, strip.softirq, strip.user, strip.steal].map(bytes)]));
}

/**
 * All strips as one picture, a pixel a column.
 * @param {Row[]} rows
 * @param {Map<number, Shares>} shares
 * @param {number} columns
 * @param {number} bottom of the last row, CSS pixels
 * @param {number} ratio pixels of the screen to one of CSS
 */
export function painted(rows, shares, columns, bottom, ratio) {
  const colours = theme();
  const top = rows.length ? rows[0].top : 0;
  const ground = rgb(colours.ground), parts = STATES.map((name) => rgb(colours[name]));
  const groundPixel = pixel(ground), partPixels = parts.map(pixel), unknownPixel = pixel(rgb(colours.unknown));
  const picture = buffer(columns, Math.round((bottom - top) * ratio));
  const wide = picture.canvas.width;
  for (const row of rows) {
    const lists = shares.get(row.core);
    if (!lists) continue;
    const first = Math.round((row.top - top) * ratio);
    const last = Math.min(picture.canvas.height, Math.round((row.top + row.height - top) * ratio));
    for (let column = 0; column < columns; column++) {
      if (lists[0][column] === UNKNOWN) {
        for (let y = first; y < last; y++) picture.pixels[y * wide + column] = unknownPixel;
      } else if (row.tall) {
        let reached = last, sum = 0;
        for (let part = 0; part < 4; part++) {
          sum += lists[part][column];
          const edge = Math.max(first, last - Math.round((sum / MOST) * (last - first)));
          for (let y = edge; y < reached; y++) picture.pixels[y * wide + column] = partPixels[part];
          reached = Math.min(reached, edge);
        }
        for (let y = first; y < reached; y++) picture.pixels[y * wide + column] = groundPixel;
      } else {
        const one = blended(ground, parts, lists, column);
        for (let y = first; y < last; y++) picture.pixels[y * wide + column] = one;
      }
    }
  }
  picture.done();
  return picture.canvas;
}

/**
 * One pixel for the shares of a column: idle time lets the ground through. Called for every cell, so without a list of its own.
 * @param {import('./colours.js').Rgb} ground
 * @param {import('./colours.js').Rgb[]} parts
 * @param {Shares} lists
 * @param {number} column
 */
export function blended(ground, parts, lists, column) {
  let sum = 0;
  for (let part = 0; part < parts.length; part++) sum += lists[part][column];
  const over = Math.max(MOST, sum), idle = 1 - sum / over;
  let red = idle * ground[0], green = idle * ground[1], blue = idle * ground[2];
  for (let part = 0; part < parts.length; part++) {
    const share = lists[part][column] / over, colour = parts[part];
    red += share * colour[0];
    green += share * colour[1];
    blue += share * colour[2];
  }
  return ((255 << 24) | ((blue + 0.5) << 16) | ((green + 0.5) << 8) | (red + 0.5)) >>> 0;
}

/**
 * Names in the gutter: of each tall strip, and how many thin ones there are. Those that are filtered for are marked.
 * @param {import('./canvas.js').Context} context
 * @param {Row[]} rows
 * @param {number[] | null} wanted
 */
export function names(context, rows, wanted) {
  const colours = theme();
  const thin = rows.filter((row) => !row.tall);
  for (const row of rows) {
    const chosen = wanted?.includes(row.core) ?? false;
    if (row.tall) laneName(context, coreName(row.core), row.top + row.height / 2 + 0.5, chosen || !wanted ? colours.ink : colours.dim);
    context.fillStyle = colours.focus;
    if (chosen) context.fillRect(121, row.top, 4, row.height);
  }
  if (!thin.length) return;
  context.font = SMALL;
  const middle = (thin[0].top + thin[thin.length - 1].top) / 2;
  laneName(context, `${thin.length} more cores,`, middle - 7, colours.dim);
  laneName(context, 'less odd', middle + 7, colours.dim);
}
