// @ts-check
// Lines of the logs as flags: severity by shape and colour, as much of the text as has room, none on another.
import {stacked, told, toX} from './axis.js';
import {cut, fitted, FONT, laneName, SMALL} from './canvas.js';
import {theme} from './colours.js';
import {count, counted} from './quantities.js';

const FLAG_ROW = 17, FLAG_ROWS = 3, CLUSTER = 11, LONGEST = 420, CRAMPED = 200, MOST_TOLD = 8;
const RANK = {critical: 0, warning: 1, info: 2};

/** @typedef {{x: number, flags: import('./api.js').Flag[], worst: import('./api.js').Flag}} Cluster */

/**
 * Flags that would lie on one another are one, which says the worst of them.
 * @param {import('./api.js').Flag[]} flags by time
 * @param {(time: number) => number} place
 * @returns {Cluster[]}
 */
export function clustered(flags, place) {
  /** @type {Cluster[]} */
  const found = [];
  for (const flag of flags) {
    const x = place(flag.t), last = found[found.length - 1];
    if (last && x - last.x < CLUSTER) {
      last.flags.push(flag);
      if (RANK[flag.severity] < RANK[last.worst.severity]) last.worst = flag;
    } else found.push({x, flags: [flag], worst: flag});
  }
  return found;
}

/**
 * @param {import('./api.js').Flag[]} flags
 * @param {number} leftOut
 * @param {import('./axis.js').Clock} clock
 * @returns {import('./tracks.js').Track}
 */
export function flagTrack(flags, leftOut, clock) {
  const byTime = [...flags].sort((a, b) => a.t - b.t);
  /** @type {{left: number, right: number, row: number, cluster: Cluster}[]} */
  let placed = [];
  return {
    title: 'kernel log',
    height: FLAG_ROW * FLAG_ROWS + 4,
    draw: (context, top, span, plot) => {
      const colours = theme();
      laneName(context, 'log', top + 9, colours.ink);
      context.font = SMALL;
      const lines = counted(byTime.length, 'line');
      laneName(context, leftOut ? `${lines}, ${count(leftOut)} left out` : lines, top + 23, colours.dim);
      const end = plot.left + plot.width;
      const shown = byTime.filter((flag) => flag.t >= span.from && flag.t <= span.to);
      const clusters = clustered(shown, (time) => toX(time, span, plot));
      clusters.sort((a, b) => RANK[a.worst.severity] - RANK[b.worst.severity] || a.x - b.x);
      // A text stands to the right of its mark, or to the left where the picture ends.
      const labels = clusters.map(({flags: some, worst, x}) => {
        const before = end - x < CRAMPED && x - plot.left > CRAMPED;
        const room = Math.min(LONGEST, Math.max(0, (before ? x - plot.left : end - x) - 14));
        const text = fitted(context, cut(some.length > 1 ? `${some.length}× ${worst.text}` : worst.text), room);
        const wide = context.measureText(text).width + 14;
        return {text, before, left: before ? x - wide : x - 7, right: before ? x + 7 : x + wide};
      });
      // Marks have the last row to themselves; the worst get room for their text above it first.
      const rows = stacked(labels, FLAG_ROWS - 1);
      placed = clusters.map((cluster, at) => {
        const {x} = cluster, {text, before, left, right} = labels[at], {severity} = cluster.worst;
        const labelled = rows[at] >= 0, row = labelled ? rows[at] : FLAG_ROWS - 1;
        const y = top + row * FLAG_ROW + FLAG_ROW / 2 + 1;
        mark(context, x, y, severity, colours[severity]);
        if (!labelled) return {left: x - 6, right: x + 6, row, cluster};
        context.fillStyle = severity === 'info' ? colours.dim : colours[severity];
        context.textAlign = before ? 'right' : 'left';
        context.fillText(text, before ? x - 9 : x + 9, y);
        context.textAlign = 'left';
        return {left, right, row, cluster};
      });
      context.font = FONT;
    },
    say: (x, y) => {
      const row = Math.floor(y / FLAG_ROW);
      const under = placed.find((one) => one.row === row && x >= one.left && x <= one.right)?.cluster.flags ?? [];
      const lines = under.slice(0, MOST_TOLD).map((flag) => `${told(flag.t, clock)}  ${flag.severity}  ${flag.kind}: ${cut(flag.text)}`);
      if (under.length > MOST_TOLD) lines.push(`and ${under.length - MOST_TOLD} more: zoom in`);
      return lines;
    },
  };
}

/**
 * Severity by shape as well as by colour.
 * @param {import('./canvas.js').Context} context
 * @param {number} x
 * @param {number} y
 * @param {string} severity
 * @param {string} colour
 */
function mark(context, x, y, severity, colour) {
  context.fillStyle = colour;
  context.beginPath();
  if (severity === 'critical') {
    context.moveTo(x - 5, y - 5);
    context.lineTo(x + 5, y - 5);
    context.lineTo(x, y + 5);
  } else if (severity === 'warning') {
    context.moveTo(x, y - 5);
    context.lineTo(x + 5, y);
    context.lineTo(x, y + 5);
    context.lineTo(x - 5, y);
  } else context.arc(x, y, 3, 0, 7);
  context.fill();
}
