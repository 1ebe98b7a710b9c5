// @ts-check
// The lanes under the cores: counts as lines, stretches in which something due did not run as bars, log lines as flags, and
// restarts of units as ticks. Each track knows its place, draws itself, and says what is under the pointer.
import {told, toX} from './axis.js';
import {cut, FONT, laneName, plain, SMALL} from './canvas.js';
import {theme} from './colours.js';
import {flagTrack} from './flags.js';
import {count, duration, measured} from './quantities.js';

/** @typedef {import('./axis.js').Span} Span */
/** @typedef {import('./axis.js').Plot} Plot */
/** @typedef {import('./axis.js').Clock} Clock */
/** @typedef {import('./canvas.js').Context} Context */
/**
 * @typedef {object} Track
 * @property {string} title
 * @property {number} height
 * @property {(context: Context, top: number, span: Span, plot: Plot) => void} draw
 * @property {(x: number, y: number, time: number, span: Span, plot: Plot) => string[]} say `y` from its top
 */

const LINE = 36, BAR = 18, STEM = 4;
const MOST_UNITS = 5, MOST_TOLD = 8;

/**
 * All tracks of an answer, and the titles of those that saw nothing: they are told in one sentence.
 * @param {import('./api.js').Lanes} lanes
 * @param {Clock} clock
 * @returns {{tracks: Track[], quiet: string[]}}
 */
export function tracksOf(lanes, clock) {
  const loud = lanes.lines.filter((line) => line.most > 0 && line.values.some((value) => value !== null));
  const quiet = lanes.lines.filter((line) => !loud.includes(line)).map((line) => line.title);
  const tracks = loud.map((line) => lineTrack(line, lanes));
  tracks.push(...lanes.bars.filter((bars) => bars.spans.length).map((bars) => barTrack(bars, clock)));
  tracks.push(...restartTracks(lanes.restarts, clock));
  if (lanes.flags.length) tracks.push(flagTrack(lanes.flags, lanes.flags_left_out, clock));
  return {tracks, quiet};
}

/** @param {import('./api.js').Line} line @param {Span & {columns: number}} covers @returns {Track} */
function lineTrack(line, covers) {
  const values = line.values, many = values.length;
  // A count that hardly changes is shown by its change; anything else from nothing up.
  const least = line.least > 0.7 * line.most && line.most > line.least ? line.least : 0;
  const room = line.most - least || 1;
  const step = (covers.to - covers.from) / many;
  return {
    title: line.title,
    height: LINE,
    draw: (context, top, span, plot) => {
      const colours = theme();
      const bottom = top + LINE - 4, tall = LINE - 10;
      const colour = line.key === 'live' ? colours.live : line.key === 'zombies' ? colours.zombies : colours.count;
      laneName(context, line.title, top + 11, colours.ink);
      context.font = SMALL;
      laneName(context, `${least ? `${count(least)} to ` : ''}${measured(line.most, line.unit)}`, top + 25, colours.dim);
      context.font = FONT;
      context.save();
      context.beginPath();
      context.rect(plot.left, top, plot.width, LINE);
      context.clip();
      context.fillStyle = context.strokeStyle = colour;
      context.lineWidth = 1.5;
      const first = Math.max(0, Math.floor((span.from - covers.from) / step) - 1);
      const last = Math.min(many, Math.ceil((span.to - covers.from) / step) + 1);
      for (let start = first; start < last; start++) {
        if (values[start] === null) continue;
        let end = start;
        while (end < last && values[end] !== null) end++;
        const [begin, stop] = [start, end].map((at) => toX(covers.from + at * step, span, plot));
        if (stop - begin < STEM) {
          // A single reading is a stem: a dot would not be seen.
          const high = Math.max(...values.slice(start, end).map((value) => value ?? 0));
          context.fillRect(begin, bottom - ((high - least) / room) * tall, Math.max(2, stop - begin), ((high - least) / room) * tall);
          start = end;
          continue;
        }
        const path = new Path2D();
        for (let i = start; i < end; i++) {
          const y = bottom - ((/** @type {number} */ (values[i]) - least) / room) * tall;
          const [from, to] = [covers.from + i * step, covers.from + (i + 1) * step].map((time) => toX(time, span, plot));
          if (i === start) path.moveTo(from, y);
          else path.lineTo(from, y);
          path.lineTo(to, y);
        }
        context.stroke(path);
        path.lineTo(stop, bottom);
        path.lineTo(begin, bottom);
        context.globalAlpha = 0.15;
        context.fill(path);
        context.globalAlpha = 1;
        start = end;
      }
      context.restore();
      context.fillStyle = colours.line;
      context.fillRect(plot.left, bottom, plot.width, 1);
    },
    say: (_x, _y, time) => {
      const value = values[Math.floor((time - covers.from) / step)];
      return [`${line.title}: ${value === null || value === undefined ? 'not known' : measured(value, line.unit)}`];
    },
  };
}

/** @param {import('./api.js').Bars} bars @param {Clock} clock @returns {Track} */
function barTrack(bars, clock) {
  return {
    title: bars.title,
    height: BAR,
    draw: (context, top, span, plot) => {
      const colours = theme();
      laneName(context, plain(bars.title), top + BAR / 2, colours.ink);
      context.fillStyle = colours.late;
      for (const [from, to] of bars.spans) {
        if (to < span.from || from > span.to) continue;
        const left = Math.max(plot.left, toX(from, span, plot)), right = Math.min(plot.left + plot.width, toX(to, span, plot));
        context.fillRect(left, top + 3, Math.max(2, right - left), BAR - 7);
      }
      context.fillStyle = colours.line;
      context.fillRect(plot.left, top + BAR - 2, plot.width, 1);
    },
    say: (x, _y, _time, span, plot) => {
      const under = bars.spans.filter(([from, to]) => x >= toX(from, span, plot) - 3 && x <= toX(to, span, plot) + 3);
      return under.slice(0, MOST_TOLD).map(
        ([from, to, core, text]) => `${told(from, clock)}  ${duration(to - from)}${core >= 0 ? `, core ${core}` : ''}  ${cut(text)}`,
      );
    },
  };
}

/**
 * A lane for each of the units that restarted most, one for all others.
 * @param {import('./api.js').Restart[]} restarts
 * @param {Clock} clock
 * @returns {Track[]}
 */
function restartTracks(restarts, clock) {
  /** @type {Map<string, import('./api.js').Restart[]>} */
  const units = new Map();
  for (const one of restarts) units.set(one.unit, [...(units.get(one.unit) ?? []), one]);
  const most = [...units].sort((a, b) => b[1].length - a[1].length);
  const lanes = most.slice(0, MOST_UNITS);
  const others = most.slice(MOST_UNITS).flatMap(([, times]) => times);
  if (others.length) lanes.push(['other restarts', others]);
  return lanes.map(([title, times]) => ({
    title,
    height: BAR,
    draw: (context, top, span, plot) => {
      const colours = theme();
      laneName(context, `↻ ${cut(title)}`, top + BAR / 2, colours.ink);
      context.fillStyle = colours.ink;
      for (const {t} of times) {
        if (t >= span.from && t <= span.to) context.fillRect(Math.round(toX(t, span, plot)) - 1, top + 3, 2, BAR - 7);
      }
      context.fillStyle = colours.line;
      context.fillRect(plot.left, top + BAR - 2, plot.width, 1);
    },
    say: (x, _y, _time, span, plot) => {
      const under = times.filter(({t}) => Math.abs(toX(t, span, plot) - x) <= 4);
      return under.slice(0, MOST_TOLD).map(({t, unit, times}) => `${told(t, clock)}  ${cut(unit)} restarted${times > 1 ? ` ${times} times` : ''}`);
    },
  }));
}
