// @ts-check
// The whole recording at a glance: how much of its time the worst core was in the kernel, how busy all were, zombies; the
// incidents marked and listed; and the window that everything below shows, which can be moved, stretched and drawn here.
import {plotOf, told, toX} from './axis.js';
import {isAbort} from './api.js';
import {brush, goTo} from './brush.js';
import {laneName, plain, plane, scale, SMALL} from './canvas.js';
import {theme, themed} from './colours.js';
import {count, duration} from './quantities.js';

const MARKS = 20, HEIGHT = 64, SCALE = 20, AGAIN_MS = 1500;
// The server tries again after half a minute, and then less often.
const TRIED_AGAIN_MS = 30_000;

/**
 * What is to be said of the incidents beside their list: that there are none and why, or how many of them are what.
 * @param {Pick<import('./api.js').Overview, 'incidents' | 'incidents_ready' | 'incidents_failed' | 'incidents_more'>} overview
 */
export function incidentsTold({incidents, incidents_ready: ready, incidents_failed: failed, incidents_more: more = 0}) {
  if (failed && !incidents.length) return 'Incidents could not be looked for in this recording.';
  if (!incidents.length && !more) return ready ? 'No incident was found in this recording.' : 'Looking for incidents…';
  const all = incidents.length + more, open = incidents.filter((one) => one.judged === false).length;
  const counted = all === 1 ? '1 incident was found' : `${count(all)} incidents were found`;
  const parts = [open && `${count(open)} of them not judged yet: go to one, and the verdict is of it`, more && `${count(more)} of them not listed here`];
  const sentences = [(open || more) && `${counted}, ${parts.filter(Boolean).join('; ')}.`, failed && 'Later ones could not be looked for.'];
  return sentences.filter(Boolean).join(' ');
}

/**
 * The stretches of columns of which something is known, each with the column after it.
 * @param {(number | null)[]} values
 * @param {(number | null)[]} [or] known where these are, too
 * @returns {[number, number][]}
 */
export function stretches(values, or = []) {
  /** @type {[number, number][]} */
  const found = [];
  values.forEach((value, at) => {
    if (value === null && (or[at] ?? null) === null) return;
    const last = found.at(-1);
    if (last && last[1] === at) last[1] = at + 1;
    else found.push([at, at + 1]);
  });
  return found;
}

/**
 * What the whole recording shows over its time. Where nothing is known of the cores, what was there before stays.
 * @param {import('./canvas.js').Context} context
 * @param {Pick<import('./api.js').Overview, 'kernel' | 'busy' | 'zombies'>} overview
 * @param {{left: number, right: number, top: number, bottom: number}} place
 * @param {Record<string, string>} colours
 */
export function curves(context, {kernel, busy, zombies}, {left, right, top, bottom}, colours) {
  const tall = bottom - top, wide = (right - left) / Math.max(1, kernel.length);
  /** @param {number} column */
  const x = (column) => left + column * wide;
  context.fillStyle = colours.ground;
  for (const [from, to] of stretches(kernel, busy)) context.fillRect(x(from), top, x(to) - x(from), tall);
  context.fillStyle = colours.system;
  context.globalAlpha = 0.85;
  kernel.forEach((value, column) => {
    if (value !== null) context.fillRect(x(column), bottom - value * tall, Math.max(wide, 0.5) + 0.2, value * tall);
  });
  context.globalAlpha = 1;
  line(busy, 1, colours.busy, []);
  line(zombies, Math.max(...zombies.map((value) => value ?? 0)), colours.ink, [3, 2]);

  /** @param {(number | null)[]} values @param {number} most @param {string} colour @param {number[]} dash */
  function line(values, most, colour, dash) {
    if (most <= 0) return;
    /** @param {number} column */
    const y = (column) => bottom - 1 - ((values[column] ?? 0) / most) * (tall - 6);
    context.strokeStyle = colour;
    context.lineWidth = dash.length ? 1 : 1.5;
    context.setLineDash(dash);
    context.beginPath();
    for (const [from, to] of stretches(values)) {
      context.moveTo(x(from), y(from));
      for (let column = from; column < to; column++) context.lineTo(x(column) + wide / 2, y(column));
      // One that is alone must be seen.
      context.lineTo(Math.max(x(to), x(from) + 2), y(to - 1));
    }
    context.stroke();
    context.setLineDash([]);
  }
}

/**
 * @param {HTMLElement} element
 * @param {import('./state.js').Store} store
 * @param {import('./api.js').Api} api
 */
export function mountOverview(element, store, api) {
  const picture = plane(element, 'The whole recording', draw);
  picture.setHeight(MARKS + HEIGHT + SCALE);
  const list = document.createElement('ol');
  list.className = 'incidents';
  const note = document.createElement('p');
  note.className = 'note';
  element.append(note, list);

  /** @type {import('./api.js').Overview | null} */
  let overview = null;
  let again = 0, covers = 0, asked = 0;
  const whole = () => ({from: 0, to: Math.max(1, store.about().duration_us)});
  const plot = () => plotOf(picture.width());

  async function refresh() {
    clearTimeout(again);
    if (picture.width() < 1) return;
    const duration = (asked = store.about().duration_us);
    try {
      const before = overview;
      overview = await api.overview(Math.max(50, Math.min(2000, Math.round(plot().width))));
      covers = overview.to ?? duration;
      if (JSON.stringify(before?.incidents) !== JSON.stringify(overview.incidents)) enumerate();
      explain();
      picture.redraw();
      if ((overview.ready ?? 1) < 1) again = setTimeout(refresh, AGAIN_MS);
      else if (overview.incidents_failed) again = setTimeout(refresh, TRIED_AGAIN_MS);
      else if (!overview.incidents_ready) again = setTimeout(refresh, AGAIN_MS);
    } catch (error) {
      if (!isAbort(error)) store.status.set({text: `Overview: ${/** @type {Error} */ (error).message}`, bad: true});
    }
  }

  function explain() {
    if (!overview) return;
    const many = overview.incidents.length;
    note.textContent = incidentsTold(overview);
    note.hidden = note.textContent === '';
    picture.label(`The whole recording, ${duration(store.about().duration_us)}, with ${count(many)} incidents. They are listed below. ${note.textContent}`);
  }

  function enumerate() {
    const clock = store.about();
    const entries = (overview?.incidents ?? []).map((incident, at) => {
      const button = document.createElement('button');
      button.type = 'button';
      button.className = incident.judged === false ? `${incident.health} unjudged` : incident.health;
      const when = document.createElement('b'), what = document.createElement('span');
      when.textContent = `${at + 1}  ${told(incident.start, clock, 1e6)}`;
      const why = incident.judged === false ? 'not judged yet' : `${plain(incident.cause ?? 'cause not visible')}  ${plain(incident.subject ?? '')}`;
      what.textContent = ` ${duration(Math.max(0, incident.end - incident.start))}  ${why}`;
      button.append(when, what);
      button.title = plain(incident.summary);
      button.addEventListener('click', () => goTo(store, {from: incident.start, to: incident.end}));
      const entry = document.createElement('li');
      entry.append(button);
      return entry;
    });
    list.replaceChildren(...entries);
  }

  /** @param {import('./canvas.js').Context} context @param {number} width @param {number} height */
  function draw(context, width, height) {
    const colours = theme(), at = plotOf(width), all = whole(), bottom = MARKS + HEIGHT;
    // What was not asked for yet, or could not be had, is not idle.
    context.fillStyle = colours.unknown;
    context.fillRect(at.left, MARKS, at.width, HEIGHT);
    // Drawn over the time it was asked for: while a recording grows, nothing jumps.
    if (overview && covers) curves(context, overview, {left: at.left, right: toX(covers, all, at), top: MARKS, bottom}, colours);
    laneName(context, 'worst core', MARKS + 12, colours.ink);
    context.font = SMALL;
    laneName(context, '■ in the kernel', MARKS + 26, colours.system);
    laneName(context, '━ all cores busy', MARKS + 40, colours.busy);
    laneName(context, '┄ zombies', MARKS + 54, colours.dim);
    scale(context, all, at, store.about(), {top: bottom, bottom: bottom + 4, y: height - 8});
    frame(context, at);
    for (const [index, incident] of (overview?.incidents ?? []).entries()) flag(context, at, index, incident);
  }

  /** What is not in the window is veiled. @param {import('./canvas.js').Context} context @param {import('./axis.js').Plot} at */
  function frame(context, at) {
    const colours = theme(), state = store.get(), end = at.left + at.width;
    const [left, right] = [toX(state.from, whole(), at), toX(state.to, whole(), at)];
    context.globalAlpha = 0.55;
    context.fillStyle = colours.veil;
    context.fillRect(at.left, MARKS, Math.max(0, left - at.left), HEIGHT);
    context.fillRect(right, MARKS, Math.max(0, end - right), HEIGHT);
    context.globalAlpha = 1;
    context.strokeStyle = colours.ink;
    context.lineWidth = 1;
    context.strokeRect(Math.round(left) + 0.5, MARKS + 0.5, Math.max(2, Math.round(right - left) - 1), HEIGHT - 1);
    if (state.selFrom === null || state.selTo === null) return;
    const [from, to] = [toX(state.selFrom, whole(), at), toX(state.selTo, whole(), at)];
    context.fillStyle = colours.focus;
    context.fillRect(from, MARKS + HEIGHT - 4, Math.max(2, to - from), 4);
  }

  /**
   * @param {import('./canvas.js').Context} context
   * @param {import('./axis.js').Plot} at
   * @param {number} index
   * @param {import('./api.js').Incident} incident
   */
  function flag(context, at, index, incident) {
    const colours = theme(), x = toX(incident.start, whole(), at), to = toX(incident.end, whole(), at);
    context.fillStyle = incident.health === 'critical' ? colours.critical : colours.warning;
    context.fillRect(x, MARKS - 3, Math.max(2, to - x), 3);
    const next = overview?.incidents[index + 1];
    // A number only where it does not lie on the next one.
    if (next && toX(next.start, whole(), at) - x < 16) return;
    context.beginPath();
    context.roundRect(x + 0.5, 1.5, 14, 13, 3);
    context.strokeStyle = context.fillStyle;
    context.lineWidth = 1;
    // One that was not judged is an outline.
    context.stroke();
    if (incident.judged !== false) {
      context.fill();
      context.fillStyle = colours.paper;
    }
    context.textAlign = 'center';
    context.fillText(String(index + 1), x + 7.5, 8.5);
    context.textAlign = 'left';
  }

  /** @param {number} x */
  const incidentAt = (x) =>
    (overview?.incidents ?? []).find((one) => {
      const [left, right] = [one.start, one.end].map((time) => toX(time, whole(), plot()));
      return x >= left - 3 && x <= Math.max(right, left + 15) + 2;
    });

  brush(picture.canvas, store, {plot, whole, incidentAt, marks: MARKS, bottom: MARKS + HEIGHT});
  picture.onResize(refresh);
  themed.subscribe(picture.redraw);
  store.subscribe((state, before) => {
    if (store.about().duration_us !== asked) refresh();
    if (state !== before) picture.redraw();
  });
}
