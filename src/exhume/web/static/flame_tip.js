// @ts-check
// What is told about the frame under the pointer, and the line around it. Elements above the canvas, which is not drawn anew.
import { element } from './flame_controls.js';
import { box } from './flame_draw.js';
import { lines } from './flame_words.js';

/** @typedef {import('./flame_draw.js').Picture} Picture */

export function makeTip() {
  const outline = element('div', 'flame-hover');
  const text = element('div', 'flame-tip');
  outline.hidden = text.hidden = true;
  let [shownFrame, shownOf] = [-1, /** @type {object | null} */ (null)];

  /** @param {Picture | null} picture @param {number} frame or -1 @param {{x: number, y: number} | null} pointer in the window */
  function show(picture, frame, pointer) {
    const place = picture !== null && frame >= 0 ? box(picture, frame) : null;
    outline.hidden = text.hidden = place === null || pointer === null;
    if (picture === null || place === null || pointer === null) return;
    Object.assign(outline.style, { left: `${place.left}px`, top: `${place.top + picture.scrolled}px`, width: `${place.width}px` });
    if (shownFrame !== frame || shownOf !== picture.layout) {
      [shownFrame, shownOf] = [frame, picture.layout];
      text.replaceChildren(...lines(picture.layout, frame, picture.zoomed).map((line, i) => {
        const part = element(i === 0 ? 'strong' : 'span', '');
        part.textContent = line;
        return part;
      }));
    }
    const [wide, high] = [text.offsetWidth, text.offsetHeight];
    text.style.left = `${Math.max(4, Math.min(pointer.x + 12, innerWidth - wide - 8))}px`;
    text.style.top = `${pointer.y + 18 + high > innerHeight ? pointer.y - high - 10 : pointer.y + 18}px`;
  }

  return { outline, text, show };
}
