// @ts-check
// The subsecond-offset heat map: a column is a second, read upwards from its begin, so that what happens in every second is a
// stripe across and a second without rest a full column. A drag goes from cell to cell: what lies between them in time is
// selected, to the fiftieth of a second.
import {between, coreName, plotOf, told, toTime, toX, widened} from './axis.js';
import {bytes, isAbort} from './api.js';
import {buffer, laid, laneName, marked, plane, scale, SMALL} from './canvas.js';
import {heatStops, pixel, ramp, rgb, theme, themed} from './colours.js';
import {patient} from './patient.js';
import {wentAlong} from './state.js';
import {counted, duration} from './quantities.js';

const TOP = 4, HEIGHT = 200, SCALE = 22, REST_MS = 80, AGAIN_MS = 1000, SECOND = 1_000_000;

/**
 * Columns merged two by two, the larger of each two cells kept, until there are no more of them than pixels: a single hot
 * cell in hours must not be lost between two pixels.
 * @param {Uint8Array} cells column by column
 * @param {number} columns
 * @param {number} rows
 * @param {number} most columns that can be shown
 * @returns {{cells: Uint8Array, columns: number, merged: number}}
 */
export function condensed(cells, columns, rows, most) {
  let merged = 1;
  while (columns > Math.max(1, most)) {
    const half = Math.ceil(columns / 2), next = new Uint8Array(half * rows);
    for (let column = 0; column < columns; column++) {
      for (let row = 0; row < rows; row++) {
        const to = (column >> 1) * rows + row, value = cells[column * rows + row];
        if (value > next[to]) next[to] = value;
      }
    }
    cells = next;
    columns = half;
    merged *= 2;
  }
  return {cells, columns, merged};
}

/**
 * Whether nothing is known of any of the columns that are merged to one.
 * @param {Uint8Array} unknown a bit a column
 * @param {number} columns
 * @param {number} column of the merged ones
 * @param {number} merged how many are one
 */
export function allUnknown(unknown, columns, column, merged) {
  for (let at = column * merged; at < Math.min(columns, (column + 1) * merged); at++) if (!marked(unknown, at)) return false;
  return true;
}

/**
 * @param {HTMLElement} element
 * @param {import('./state.js').Store} store
 * @param {import('./api.js').Api} api
 * @returns {Promise<void>} fulfilled when the first picture is there, or why there is none
 */
export function mountHeat(element, store, api) {
  /** @type {() => void} */
  let begun = () => {};
  const shown = /** @type {Promise<void>} */ (new Promise((done) => (begun = done)));
  const picture = plane(element, 'Subsecond heat map', draw);
  picture.canvas.className = 'timed';
  picture.setHeight(TOP + HEIGHT + SCALE);
  const note = document.createElement('p');
  note.className = 'note';
  element.append(note);

  /** @type {{answer: import('./api.js').Heat, cells: Uint8Array, unknown: Uint8Array, columnUs: number, columns: number} | null} */
  let heat = null;
  /** @type {{canvas: HTMLCanvasElement, covers: import('./axis.js').Span} | null} */
  let image = null;
  let again = 0;

  const plot = () => plotOf(picture.width());
  const window_ = () => ({from: store.get().from, to: store.get().to});

  function paint() {
    if (!heat) return;
    const {answer, cells, columns, columnUs} = heat;
    const visible = ((store.get().to - store.get().from) / columnUs) || 1;
    const across = Math.ceil((columns / visible) * plot().width * (devicePixelRatio || 1));
    const small = condensed(cells, columns, answer.rows, Math.max(across, 64));
    const colours = ramp(heatStops(Boolean(store.get().colour))), unknown = pixel(rgb(theme().unknown));
    const made = buffer(small.columns, answer.rows);
    for (let column = 0; column < small.columns; column++) {
      const empty = allUnknown(heat.unknown, columns, column, small.merged);
      for (let row = 0; row < answer.rows; row++) {
        made.pixels[(answer.rows - 1 - row) * small.columns + column] = empty ? unknown : colours[small.cells[column * answer.rows + row]];
      }
    }
    made.done();
    image = {canvas: made.canvas, covers: {from: answer.start, to: answer.start + small.columns * small.merged * columnUs}};
    picture.redraw();
  }

  function explain() {
    if (!heat) return;
    const {answer, columnUs} = heat, state = store.get();
    const empty = answer.most === 0;
    const told_ = [
      state.cores?.map(coreName).join(', '), state.comm && `names like ${state.comm}`, state.pid && `process ${state.pid}`,
      state.tid && `thread ${state.tid}`, state.cgroup && `cgroups like ${state.cgroup}`,
    ].filter(Boolean).join(', ');
    const stacks = state.colour ? ` of stacks with ${state.colour}` : '';
    const column = columnUs > SECOND ? `a column is ${duration(columnUs)}; ` : '';
    if (!store.about().sampled) note.textContent = 'The recording has no stack samples: nothing to show here.';
    else if (empty) note.textContent = `No busy samples${stacks}${told_ ? `, only ${told_},` : ''} in this window.`;
    else note.textContent = `${told_ ? `Only ${told_}; ` : ''}${column}most: ${counted(answer.most, 'sample')}${stacks} in 20 ms.`;
    picture.label(`Heat map of samples by second and part of the second. ${note.textContent}`);
  }

  async function refresh() {
    clearTimeout(again);
    if (picture.width() < 1) return;
    const state = store.get(), {cores, comm, pid, tid, cgroup, colour} = state;
    const span = widened(window_(), store.about().duration_us);
    element.setAttribute('aria-busy', 'true');
    try {
      const answer = await api.heat(span.from, span.to, {cores, comm, pid, tid, cgroup, symbol: colour});
      const cells = bytes(answer.cells);
      const columnUs = (answer.seconds_per_column ?? 1) * SECOND;
      heat = {answer, cells, unknown: bytes(answer.unknown), columnUs, columns: cells.length / answer.rows};
      paint();
      explain();
      element.setAttribute('aria-busy', 'false');
      if (!performance.getEntriesByName('exhume:heat').length) performance.mark('exhume:heat');
      begun();
      if ((answer.ready ?? 1) < 1) again = setTimeout(asking.run, AGAIN_MS);
    } catch (error) {
      if (isAbort(error)) return;
      begun();
      element.setAttribute('aria-busy', 'false');
      // The picture of another choice must not stand for one that could not be made.
      heat = image = null;
      note.textContent = error instanceof Error ? error.message : String(error);
      store.status.set({text: `Heat map: ${note.textContent}`, bad: true});
      picture.redraw();
    }
  }
  const asking = patient(refresh);

  /** The moment of a cell: its second by x, the part of the second by y. @param {number} x @param {number} y */
  function at(x, y) {
    const time = toTime(x, window_(), plot());
    if (!heat || heat.columnUs !== SECOND) return time;
    const second = Math.floor((time - heat.answer.start) / SECOND);
    const row = Math.min(heat.answer.rows - 1, Math.max(0, Math.floor(((TOP + HEIGHT - y) / HEIGHT) * heat.answer.rows)));
    return heat.answer.start + second * SECOND + (row * SECOND) / heat.answer.rows;
  }

  /** @param {import('./canvas.js').Context} context @param {number} width @param {number} height */
  function draw(context, width, height) {
    const colours = theme(), shown = window_(), place = plotOf(width);
    // What was not asked for yet, or could not be had, is not idle.
    context.fillStyle = colours.unknown;
    context.fillRect(place.left, TOP, place.width, HEIGHT);
    if (heat && image) laid(context, image.canvas, image.covers, shown, place, TOP, HEIGHT);
    context.font = SMALL;
    for (const [share, text] of /** @type {[number, string][]} */ ([[0, '0 ms'], [0.5, '500 ms'], [1, '1 s']])) {
      laneName(context, text, Math.min(TOP + HEIGHT - 6, Math.max(TOP + 7, TOP + HEIGHT * (1 - share))), colours.dim);
    }
    scale(context, shown, place, store.about(), {top: TOP + HEIGHT, bottom: TOP + HEIGHT + 4, y: TOP + HEIGHT + 13});
    const {selFrom, selTo} = store.get();
    const selected = store.draft.get() ?? (selFrom !== null && selTo !== null ? {from: selFrom, to: selTo} : null);
    if (selected) outline(context, selected, shown, place);
    const hover = store.hover.get();
    if (hover !== null && hover >= shown.from && hover <= shown.to) {
      context.fillStyle = colours.dim;
      context.fillRect(Math.round(toX(hover, shown, place)), TOP, 1, height - TOP - SCALE);
    }
  }

  /**
   * A selection as cells: from its begin up to the end of that second, whole seconds, up to its end in the last one.
   * @param {import('./canvas.js').Context} context
   * @param {import('./axis.js').Span} selected
   * @param {import('./axis.js').Span} shown
   * @param {import('./axis.js').Plot} place
   */
  function outline(context, selected, shown, place) {
    const start = heat?.answer.start ?? 0, step = heat?.columnUs ?? SECOND;
    const first = Math.floor((selected.from - start) / step), last = Math.floor((selected.to - 1 - start) / step);
    /** @param {number} column */
    const x = (column) => toX(start + column * step, shown, place);
    /** @param {number} time @param {number} column */
    const y = (time, column) => TOP + HEIGHT * (1 - (time - start - column * step) / step);
    const path = new Path2D();
    path.moveTo(x(first), last > first ? TOP : y(selected.to, first));
    path.lineTo(x(first), y(selected.from, first));
    path.lineTo(x(first + 1), y(selected.from, first));
    if (last > first) {
      path.lineTo(x(first + 1), TOP + HEIGHT);
      path.lineTo(x(last + 1), TOP + HEIGHT);
      path.lineTo(x(last + 1), y(selected.to, last));
      path.lineTo(x(last), y(selected.to, last));
      path.lineTo(x(last), TOP);
    } else {
      path.lineTo(x(first + 1), y(selected.to, first));
    }
    path.closePath();
    context.save();
    context.beginPath();
    context.rect(place.left, TOP, place.width, HEIGHT);
    context.clip();
    context.fillStyle = theme().select;
    context.globalAlpha = 0.12;
    context.fill(path);
    context.globalAlpha = 1;
    // The darkest cells are as dark as the line: it has an edge.
    context.strokeStyle = theme().paper;
    context.lineWidth = 4;
    context.stroke(path);
    context.strokeStyle = theme().select;
    context.lineWidth = 2;
    context.stroke(path);
    context.restore();
  }

  /** @param {number} x @param {number} y @param {number} time @returns {string[]} */
  function say(x, y, time) {
    if (!heat || x < plot().left - 2 || y > TOP + HEIGHT) return [];
    const clock = store.about(), draft = store.draft.get(), {answer, columnUs, columns, cells} = heat;
    if (draft) return [`${told(draft.from, clock)} to ${told(draft.to, clock)}`, duration(draft.to - draft.from)];
    const column = Math.floor((time - answer.start) / columnUs);
    const row = Math.min(answer.rows - 1, Math.max(0, Math.floor(((TOP + HEIGHT - y) / HEIGHT) * answer.rows)));
    if (column < 0 || column >= columns || marked(heat.unknown, column)) return [told(time, clock), 'not recorded'];
    const count = Math.round((cells[column * answer.rows + row] / 255) * answer.most);
    const wide = columnUs === SECOND ? '20 ms' : duration(columnUs);
    return [`${told(time, clock)}, ${wide}`, counted(count, 'sample')];
  }

  // Nobody points at it before it is there.
  void shown.then(() => import('./gestures.js')).then(({gestures}) => gestures(picture.canvas, store, {plot, at, say, select: cells}));
  /** The end of a selection lies after the last cell. @param {number} one @param {number} other */
  function cells(one, other) {
    const cell = heat && heat.columnUs === SECOND ? SECOND / heat.answer.rows : 0;
    return between(Math.min(one, other), Math.max(one, other) + cell, store.about().duration_us);
  }

  picture.onResize(() => {
    paint();
    if (heat) asking.ask(REST_MS);
    else void asking.run();
  });
  picture.fit();
  themed.subscribe(paint);
  store.hover.subscribe(picture.redraw);
  store.draft.subscribe(picture.redraw);
  store.subscribe((state, before) => {
    const keys = /** @type {const} */ (['cores', 'comm', 'pid', 'tid', 'cgroup', 'colour']);
    const moved = state.from !== before.from || state.to !== before.to;
    if (keys.some((key) => state[key] !== before[key]) || (moved && !wentAlong(state, before))) asking.ask(REST_MS);
    else if (moved) asking.follow(REST_MS);
    picture.redraw();
  });
  return shown;
}
