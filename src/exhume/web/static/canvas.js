// @ts-check
// What all pictures on canvas share: one that fits its place and the screen's pixels, the marks that lie over each of them
// (scale, selection, the moment under the pointer), and the read-out beside the pointer.
import {ticks, toX} from './axis.js';
import {theme} from './colours.js';

/** @typedef {CanvasRenderingContext2D} Context */
export const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';
export const SMALL = '11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

/**
 * A canvas inside of an element, as wide as that. Drawing happens at most once a frame of the screen.
 * @param {HTMLElement} host
 * @param {string} label for those who do not see it
 * @param {(context: Context, width: number, height: number) => void} draw in CSS pixels
 */
export function plane(host, label, draw) {
  const canvas = document.createElement('canvas');
  canvas.tabIndex = 0;
  canvas.setAttribute('role', 'img');
  canvas.setAttribute('aria-label', label);
  host.append(canvas);
  const context = /** @type {Context} */ (canvas.getContext('2d', {alpha: false}));
  let width = 0, height = 0, queued = false;

  const paint = () => {
    queued = false;
    if (width < 1 || height < 1) return;
    const ratio = devicePixelRatio || 1;
    const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== across || canvas.height !== down) {
      canvas.width = across;
      canvas.height = down;
      canvas.style.height = `${height}px`;
    }
    context.setTransform(across / width, 0, 0, down / height, 0, 0);
    context.fillStyle = theme().paper;
    context.fillRect(0, 0, width, height);
    context.font = FONT;
    context.textBaseline = 'middle';
    draw(context, width, height);
  };
  const redraw = () => {
    if (queued) return;
    queued = true;
    requestAnimationFrame(paint);
  };
  /** @type {(() => void)[]} */
  const onResize = [];
  const fit = () => {
    const next = host.clientWidth;
    if (next === width) return;
    width = next;
    for (const listener of onResize) listener();
    redraw();
  };
  new ResizeObserver(fit).observe(host);

  return {
    canvas,
    redraw,
    /** Takes its place at once, and not when the browser tells of it. */
    fit,
    width: () => width,
    height: () => height,
    /** @param {number} next */
    setHeight: (next) => {
      if (next === height) return;
      height = next;
      canvas.style.height = `${next}px`;
      redraw();
    },
    /** @param {() => void} listener */
    onResize: (listener) => onResize.push(listener),
    /** @param {string} text */
    label: (text) => canvas.setAttribute('aria-label', text),
  };
}

/**
 * An empty picture of so many pixels, to draw cells on once.
 * @param {number} width
 * @param {number} height
 */
export function buffer(width, height) {
  const canvas = document.createElement('canvas');
  canvas.width = Math.max(1, width);
  canvas.height = Math.max(1, height);
  const context = /** @type {Context} */ (canvas.getContext('2d'));
  const image = context.createImageData(canvas.width, canvas.height);
  return {canvas, pixels: new Uint32Array(image.data.buffer), done: () => context.putImageData(image, 0, 0)};
}

/**
 * Lays a buffer that covers one span over a window that shows another.
 * @param {Context} context
 * @param {HTMLCanvasElement} picture
 * @param {import('./axis.js').Span} covers
 * @param {import('./axis.js').Span} shown
 * @param {import('./axis.js').Plot} plot
 * @param {number} top
 * @param {number} height
 */
export function laid(context, picture, covers, shown, plot, top, height) {
  const from = Math.max(covers.from, shown.from), to = Math.min(covers.to, shown.to);
  if (to <= from) return;
  const perColumn = (covers.to - covers.from) / picture.width;
  // Whole columns, clipped: a part of one would be stretched wrongly.
  const first = Math.floor((from - covers.from) / perColumn), last = Math.min(picture.width, Math.ceil((to - covers.from) / perColumn));
  const [left, right] = [first, last].map((column) => toX(covers.from + column * perColumn, shown, plot));
  context.save();
  context.beginPath();
  context.rect(plot.left, top, plot.width, height);
  context.clip();
  context.imageSmoothingEnabled = false;
  context.drawImage(picture, first, 0, last - first, picture.height, left, top, right - left, height);
  context.restore();
}

/** Whether a bit of a bitmap is set. @param {Uint8Array} bitmap @param {number} at */
export function marked(bitmap, at) {
  return ((bitmap[at >> 3] >> (at & 7)) & 1) === 1;
}

/**
 * A text of the node, with what is not seen or turns the line around made visible: names come from anybody.
 * @param {string} text
 */
export function plain(text) {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, '\ufffd');
}

/** A text of the node, no longer than anybody reads. @param {string} text */
export function cut(text) {
  return plain(text.length > 160 ? `${text.slice(0, 159)}…` : text);
}

/**
 * Cuts a text so that it fits, with an ellipsis.
 * @param {Context} context
 * @param {string} text
 * @param {number} room
 */
export function fitted(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  let low = 0, high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${text.slice(0, middle)}…`).width <= room) low = middle;
    else high = middle - 1;
  }
  return low ? `${text.slice(0, low)}…` : '';
}

/**
 * The name of a lane, in the gutter, right-aligned.
 * @param {Context} context
 * @param {string} text
 * @param {number} y
 * @param {string} colour
 */
export function laneName(context, text, y, colour, right = 118) {
  context.fillStyle = colour;
  context.textAlign = 'right';
  context.fillText(fitted(context, text, right - 8), right, y);
  context.textAlign = 'left';
}

/**
 * The scale with its lines through the whole picture.
 * @param {Context} context
 * @param {import('./axis.js').Span} span
 * @param {import('./axis.js').Plot} plot
 * @param {import('./axis.js').Clock} clock
 * @param {{top: number, bottom: number, y: number}} where lines from top to bottom, numbers at y
 */
export function scale(context, span, plot, clock, where) {
  const colours = theme();
  context.font = SMALL;
  context.textAlign = 'center';
  for (const tick of ticks(span, plot.width, clock)) {
    const x = Math.round(toX(tick.time, span, plot)) + 0.5;
    context.fillStyle = colours.line;
    context.fillRect(x - 0.5, where.top, 1, where.bottom - where.top);
    const half = context.measureText(tick.label).width / 2;
    context.fillStyle = colours.dim;
    context.fillText(tick.label, Math.min(Math.max(x, plot.left + half), plot.left + plot.width - half), where.y);
  }
  context.textAlign = 'left';
  context.font = FONT;
}

/**
 * The selection and the moment under the pointer.
 * @param {Context} context
 * @param {import('./state.js').Store} store
 * @param {import('./axis.js').Span} span
 * @param {import('./axis.js').Plot} plot
 * @param {{top: number, bottom: number}} where
 */
export function marks(context, store, span, plot, where) {
  const colours = theme();
  const [left, right] = [plot.left, plot.left + plot.width];
  const {selFrom, selTo} = store.get();
  const shown = store.draft.get() ?? (selFrom !== null && selTo !== null ? {from: selFrom, to: selTo} : null);
  if (shown && shown.to > span.from && shown.from < span.to) {
    const [from, to] = [Math.max(left, toX(shown.from, span, plot)), Math.min(right, toX(shown.to, span, plot))];
    context.globalAlpha = 0.13;
    context.fillStyle = colours.focus;
    context.fillRect(from, where.top, Math.max(1, to - from), where.bottom - where.top);
    context.globalAlpha = 1;
    if (shown.from >= span.from) context.fillRect(Math.round(from) - 1, where.top, 2, where.bottom - where.top);
    if (shown.to <= span.to) context.fillRect(Math.round(to) - 1, where.top, 2, where.bottom - where.top);
  }
  const hover = store.hover.get();
  if (hover !== null && hover >= span.from && hover <= span.to) {
    context.fillStyle = colours.dim;
    context.fillRect(Math.round(toX(hover, span, plot)), where.top, 1, where.bottom - where.top);
  }
}

/** The read-out beside the pointer: one for the page, lines of text only. @type {{element: HTMLElement | null}} */
const readout = {element: null};

/** @param {number} x of the screen @param {number} y @param {string[]} lines */
export function tell(x, y, lines) {
  const box = (readout.element ??= document.createElement('div'));
  if (!box.isConnected) {
    box.className = 'readout';
    box.setAttribute('aria-hidden', 'true');
    document.body.append(box);
  }
  box.hidden = false;
  if (box.textContent !== lines.join('\n')) box.textContent = lines.join('\n');
  const {offsetWidth, offsetHeight} = box;
  const left = x + 16 + offsetWidth > innerWidth ? x - 12 - offsetWidth : x + 16;
  const top = y + 18 + offsetHeight > innerHeight ? y - 10 - offsetHeight : y + 18;
  box.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
}

export function hush() {
  if (readout.element) readout.element.hidden = true;
}
