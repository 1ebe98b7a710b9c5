// @ts-check
// The flame graph as an SVG file: what is zoomed, every frame that can be seen, its numbers as a title. Made of elements and
// text, and written by the browser, so that no name can become markup.
import { plain } from './canvas.js';
import { ROW } from './flame_draw.js';
import { firstInRow } from './flame_find.js';
import { lines } from './flame_words.js';
import { across, shortened } from './flame_zoom.js';

/** @typedef {import('./flame_draw.js').Picture} Picture */

// As attributes: the page's rules forbid styles inside of documents, also in those that are only written to a file.
const FONT = { 'font-family': 'ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace', 'font-size': 12 };
const SVG = 'http://www.w3.org/2000/svg';
const TOP = 30;
const LEAST_WIDTH = 0.3;
const LETTER = 7.3; // of the 12 px monospaced font, pixels

/** @param {Picture} picture @param {string} title */
export function flameSvg(picture, title) {
  const { layout, view, palette, width } = picture;
  const height = TOP + picture.rows * ROW;
  const page = document.implementation.createDocument(SVG, 'svg', null);
  const root = page.documentElement;
  const add = (/** @type {Element} */ parent, /** @type {string} */ tag, /** @type {Record<string, string | number>} */ attributes, text = '') => {
    const made = page.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
    if (text) made.textContent = text;
    parent.append(made);
    return made;
  };
  for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) root.setAttribute(name, String(value));
  title = legal(plain(title));
  add(root, 'title', {}, title);
  add(root, 'rect', { width: '100%', height: '100%', fill: palette.paper });
  add(root, 'text', { x: 4, y: 19, ...FONT, fill: palette.outline }, title);
  const frames = add(root, 'g', FONT);
  for (let row = 0; row < Math.min(picture.rows, layout.rows); row++) {
    const y = TOP + (picture.root === 'top' ? row : picture.rows - 1 - row) * ROW;
    for (let place = firstInRow(layout, row, view.from); place < layout.rowStart[row + 1]; place++) {
      const frame = layout.rowFrames[place];
      if (layout.start[frame] >= view.to) break;
      const left = across(layout.start[frame], view, width);
      const wide = across(layout.start[frame] + layout.width[frame], view, width) - left;
      if (wide < LEAST_WIDTH) continue;
      const fill = picture.matches?.[layout.name[frame]] === 1 ? palette.ranges.m[0] : picture.fill[frame];
      const group = add(frames, 'g', {});
      add(group, 'title', {}, legal(lines(layout, frame, picture.zoomed).join('\n')));
      add(group, 'rect', { x: left.toFixed(1), y, width: Math.max(0.3, wide - 0.7).toFixed(1), height: ROW - 1, fill: palette.fills[fill] });
      const name = layout.names[layout.name[frame]];
      const letters = Math.floor((wide - 6) / LETTER);
      if (letters >= 3) add(group, 'text', { x: (left + 3).toFixed(1), y: y + 13, fill: palette.inks[fill] }, legal(shortened(name, letters)));
    }
  }
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(page)}\n`;
}

/** XML has no place for control characters, halves of surrogates and a few others. @param {string} text */
export function legal(text) {
  return text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]|[\ufffe\uffff]/g, '\ufffd');
}
