// @ts-check
// The lanes: a strip for each core, and under them what else lay side by side in time. Drawn from the last answer at once
// while the window moves; asked anew when it has rested.
import {coreName, plotOf, told, toX, uncovered, widened} from './axis.js';
import {isAbort} from './api.js';
import {laid, marks, plane, scale, SMALL} from './canvas.js';
import {theme, themed} from './colours.js';
import {gestures} from './gestures.js';
import {mountHappened} from './happened.js';
import {decoded, layout, MOST, names, orderOf, painted, STATES, UNKNOWN} from './strips.js';
import {tracksOf} from './tracks.js';
import {count, duration, percent} from './quantities.js';

const SCALE = 24, REST_MS = 80, AGAIN_MS = 1000, FLASH_MS = 2200;
const MOST_COLUMNS = 2000;

/**
 * @param {HTMLElement} element
 * @param {import('./state.js').Store} store
 * @param {import('./api.js').Api} api
 */
export function mountLanes(element, store, api) {
  const note = document.createElement('p');
  note.className = 'note';
  note.textContent = 'Reading…';
  const picture = plane(element, 'Lanes over time', draw);
  picture.canvas.className = 'timed';
  element.append(note);
  const list = mountHappened(element, store);

  /** @type {import('./api.js').Lanes | null} */
  let lanes = null;
  /** @type {{order: number[], span: import('./axis.js').Span} | null} */
  let order = null;
  /** @type {import('./strips.js').Row[]} */
  let rows = [];
  /** @type {Map<number, import('./strips.js').Shares>} */
  let shares = new Map();
  /** @type {HTMLCanvasElement | null} */
  let strips = null;
  /** @type {{track: import('./tracks.js').Track, top: number}[]} */
  let tracks = [];
  /** @type {[number, number, number | null][]} */
  let flashed = [];
  let bottom = SCALE, resting = 0, again = 0, flashing = 0;

  const plot = () => plotOf(picture.width());
  const window_ = () => ({from: store.get().from, to: store.get().to});

  function arrange() {
    if (!lanes) return;
    const {shown, kept} = orderOf(lanes, store.get(), order);
    order = kept;
    const placed = layout(shown, SCALE);
    rows = placed.rows;
    bottom = placed.bottom;
    strips = rows.length ? painted(rows, shares, lanes.columns, bottom, devicePixelRatio || 1) : null;
    const found = tracksOf(lanes, store.about());
    let top = bottom + 6;
    tracks = found.tracks.map((track) => {
      const at = top;
      top += track.height + 2;
      return {track, top: at};
    });
    picture.setHeight(Math.max(SCALE + 20, top + 2));
    explain(found.quiet);
    list.show(lanes);
    picture.redraw();
  }

  /** @param {string[]} quiet */
  function explain(quiet) {
    if (!lanes) return;
    const sentences = [];
    if (!lanes.cores.length) sentences.push('Nothing is known of the cores in this window.');
    if (quiet.length) sentences.push(`Nothing seen of: ${quiet.join(', ')}.`);
    if (lanes.flags_left_out) sentences.push(`${count(lanes.flags_left_out)} log lines are left out: zoom in to see them.`);
    if (lanes.source === 'samples') sentences.push('Shares of the cores are those of stack samples: no counters were kept.');
    if (lanes.source === 'summary') sentences.push('Shares of the cores are by stack samples; zoom in for counters and steal.');
    note.textContent = sentences.join(' ');
    const {from, to} = window_(), odd = rows.slice(0, 3).map((row) => row.core).join(', ');
    picture.label(
      `${rows.length} cores from ${told(from, store.about())} to ${told(to, store.about())}, the oddest first: ${odd}. ` +
        `${lanes.flags.length} log lines${lanes.flags.length ? ', listed below' : ''}. ${note.textContent}`,
    );
  }

  async function refresh() {
    clearTimeout(again);
    if (picture.width() < 1) return;
    const span = widened(window_(), store.about().duration_us);
    const share = (span.to - span.from) / (store.get().to - store.get().from);
    const columns = Math.max(50, Math.min(MOST_COLUMNS, Math.round(plot().width * share)));
    element.setAttribute('aria-busy', 'true');
    try {
      const next = await api.lanes(span.from, span.to, columns);
      element.setAttribute('aria-busy', 'false');
      if (next === lanes) return;
      lanes = next;
      shares = decoded(next.cores);
      arrange();
      if ((next.ready ?? 1) < 1) again = setTimeout(refresh, AGAIN_MS);
    } catch (error) {
      if (isAbort(error)) return;
      element.setAttribute('aria-busy', 'false');
      store.status.set({text: `Lanes: ${/** @type {Error} */ (error).message}`, bad: true});
    }
  }
  const rest = () => {
    clearTimeout(resting);
    resting = setTimeout(refresh, REST_MS);
  };

  /** @param {import('./canvas.js').Context} context @param {number} width @param {number} height */
  function draw(context, width, height) {
    const colours = theme(), shown = window_(), at = plotOf(width);
    context.fillStyle = colours.ground;
    context.fillRect(at.left, SCALE, at.width, Math.max(0, bottom - SCALE));
    scale(context, shown, at, store.about(), {top: 16, bottom: height, y: 8});
    if (!lanes) return;
    if (strips) laid(context, strips, lanes, shown, at, SCALE, bottom - SCALE);
    // What was not fetched yet, or could not be, is not idle.
    context.fillStyle = colours.unknown;
    for (const {from, to} of uncovered(lanes, shown)) {
      const left = toX(from, shown, at), right = toX(to, shown, at);
      for (const row of rows) context.fillRect(left, row.top, right - left, row.height);
    }
    names(context, rows, store.get().cores);
    for (const {track, top} of tracks) track.draw(context, top, shown, at);
    marks(context, store, shown, at, {top: SCALE, bottom: height});
    context.strokeStyle = colours.focus;
    context.lineWidth = 3;
    for (const [from, to, core] of flashed) {
      const row = rows.find((one) => one.core === core);
      const [left, right] = [Math.max(at.left, toX(from, shown, at)), Math.min(at.left + at.width, toX(to, shown, at))];
      if (right < at.left || left > at.left + at.width) continue;
      context.strokeRect(left - 2, (row?.top ?? SCALE) - 2, Math.max(2, right - left) + 4, (row ? row.height : height - SCALE - 2) + 4);
    }
    context.font = SMALL;
  }

  /** @param {number} x @param {number} y @param {number} time @returns {string[]} */
  function say(x, y, time) {
    if (!lanes) return [];
    const clock = store.about(), row = rows.find((one) => y >= one.top - 1 && y < one.top + one.height + 1);
    if (x < plot().left - 2) return row ? [coreName(row.core), 'click: only this core; ctrl and click: this one too'] : [];
    const draft = store.draft.get();
    const head = draft ? `${told(draft.from, clock)} to ${told(draft.to, clock)}  (${duration(draft.to - draft.from)})` : told(time, clock);
    if (row) return [head, shareOf(row.core, time)];
    const under = tracks.find(({track, top}) => y >= top && y < top + track.height);
    return [head, ...(under?.track.say(x, y - under.top, time, window_(), plot()) ?? [])];
  }

  /** @param {number} core @param {number} time */
  function shareOf(core, time) {
    const known = shares.get(core);
    if (!lanes || !known) return coreName(core);
    const column = Math.floor(((time - lanes.from) / (lanes.to - lanes.from)) * lanes.columns);
    if (column < 0 || column >= lanes.columns || known[0][column] === UNKNOWN) return `${coreName(core)}: not recorded`;
    const parts = STATES.map((name, at) => ({name, share: known[at][column] / MOST}));
    const told_ = parts.filter((part) => part.share >= 0.005).map((part) => `${part.name} ${percent(part.share)}`);
    return `${coreName(core)}: ${told_.join(', ') || 'idle'}`;
  }

  gestures(picture.canvas, store, {plot, say});
  picture.canvas.addEventListener('click', (event) => {
    if (event.offsetX >= plot().left - 2) return;
    const row = rows.find((one) => event.offsetY >= one.top - 1 && event.offsetY < one.top + one.height + 1);
    if (!row) return;
    const before = store.get().cores ?? [], many = event.ctrlKey || event.metaKey;
    const without = before.filter((core) => core !== row.core);
    const next = before.includes(row.core) ? (many ? without : []) : [...(many ? before : []), row.core];
    store.set({cores: next.length ? next.sort((a, b) => a - b) : null}, {push: true});
  });
  addEventListener('exhume:flash', (event) => {
    flashed = /** @type {CustomEvent} */ (event).detail?.spans ?? [];
    picture.redraw();
    element.scrollIntoView({block: 'nearest', behavior: matchMedia('(prefers-reduced-motion: reduce)').matches ? 'auto' : 'smooth'});
    clearTimeout(flashing);
    flashing = setTimeout(() => {
      flashed = [];
      picture.redraw();
    }, FLASH_MS);
  });

  picture.onResize(() => {
    picture.setHeight(Math.max(60, picture.height()));
    if (lanes) rest();
    else void refresh();
  });
  themed.subscribe(arrange);
  store.hover.subscribe(picture.redraw);
  store.draft.subscribe(picture.redraw);
  store.subscribe((state, before) => {
    if (state.cores !== before.cores) arrange();
    if (state.from !== before.from || state.to !== before.to) rest();
    picture.redraw();
  });
}
