// What is drawn: only what can be seen, text where it fits, colours that everybody can tell apart.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import { brightness, colour, paint, readPalette, ROW, rowAt, rowTop } from '../../../src/exhume/web/static/flame_draw.js';
import { layOut } from '../../../src/exhume/web/static/flame_layout.js';
import { hostile, tree } from './flame_trees.mjs';

const CSS = readFileSync(new URL('../../../src/exhume/web/static/flame.css', import.meta.url), 'utf8');

/** The variables of a theme, as a browser computes them. @param {boolean} dark */
function style(dark) {
  const blocks = [...CSS.matchAll(/:root(\[data-theme='dark'\])? \{([^}]*)\}/g)].filter((found) => dark || !found[1]);
  const variables = new Map(blocks.flatMap((found) => [...found[2].matchAll(/(--[\w-]+): ([^;]+);/g)].map((pair) => [pair[1], pair[2]])));
  return /** @type {any} */ ({ getPropertyValue: (name) => variables.get(name) ?? '' });
}

/** A context that remembers. */
function canvas() {
  const calls = { texts: [] };
  return Object.assign(/** @type {any} */ (calls), {
    measureText: (text) => ({ width: text.length * 7 }),
    createImageData: (width, height) => ({ width, height, data: new Uint8ClampedArray(width * height * 4) }),
    putImageData: (image) => { calls.image = image; },
    fillText: (...what) => calls.texts.push(what),
    strokeRect: () => {},
  });
}

/** @param {any} data */
function picture(data, more = {}) {
  const layout = layOut(data);
  const palette = readPalette(style(false));
  return { layout, palette, fill: colour(layout, palette), view: { from: 0, to: layout.width[0] || 1 }, width: 1000, height: 400, ratio: 1,
    scrolled: 0, rows: layout.rows, root: 'top', zoomed: 0, focused: -1, matches: null, ...more };
}

test('of frames narrower than a pixel no more are drawn than there are pixels', () => {
  const rows = Array.from({ length: 30000 }, (_, i) => [0, `f${i}`, 'k', 1]);
  const drawn = paint(canvas(), picture(tree(rows)));
  assert.ok(drawn <= 1002, String(drawn));
});

test('rows out of sight are not drawn', () => {
  const rows = Array.from({ length: 500 }, (_, i) => [i, `f${i}`, 'k', 10]);
  assert.equal(paint(canvas(), picture(tree(rows))), Math.ceil(400 / ROW));
  assert.ok(paint(canvas(), picture(tree(rows), { scrolled: 3000, root: 'bottom' })) <= 400 / ROW + 2);
});

test('text is cut to the frame, and names with markup are drawn as text', () => {
  const context = canvas();
  paint(context, picture(tree([[0, 'x'.repeat(500), 'k', 1], [0, '<b>y</b>', 'u', 99]])));
  assert.ok(context.texts.every(([text, , , most]) => text.length * 7 <= most));
  assert.ok(context.texts.some(([text]) => text === '<b>y</b>'));
  paint(canvas(), picture(hostile()));
});

test('each pixel has the colour of the frame that is there', () => {
  const context = canvas();
  const one = picture(tree([[0, 'a', 'k', 500], [0, 'b', 'u', 500]]), { ratio: 2 });
  paint(context, one);
  const pixel = (x, y) => '#' + [...context.image.data.slice((y * 2000 + x) * 4, (y * 2000 + x) * 4 + 3)].map((part) => part.toString(16).padStart(2, '0')).join('');
  assert.equal(pixel(10, ROW * 2 + 5), one.palette.fills[one.fill[1]]);
  assert.equal(pixel(1100, ROW * 4 - 5), one.palette.fills[one.fill[2]]);
  assert.equal(pixel(10, ROW * 4 - 1), one.palette.paper);
  assert.equal(pixel(999, ROW * 2 + 5), one.palette.paper);
});

test('the root can be at the top or at the bottom', () => {
  const top = { root: /** @type {const} */ ('top'), rows: 10, scrolled: 5 };
  const bottom = { ...top, root: /** @type {const} */ ('bottom') };
  assert.equal(rowTop(top, 0), -5);
  assert.equal(rowTop(bottom, 0), 9 * ROW - 5);
  for (const one of [top, bottom]) for (let row = 0; row < 10; row++) assert.equal(rowAt(one, rowTop(one, row) + 3), row);
});

// Machado, Oliveira and Fernandes (2009), severity 1, on linear light.
const BLINDNESS = {
  none: [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  protan: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  deutan: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  tritan: [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
};

/** CIE L*a*b* of a colour as somebody sees it. @param {string} hex @param {number[][]} eyes */
function seen(hex, eyes) {
  const light = [1, 3, 5].map((at) => { const part = parseInt(hex.slice(at, at + 2), 16) / 255; return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4; });
  const [r, g, b] = eyes.map((row) => Math.min(1, Math.max(0, row[0] * light[0] + row[1] * light[1] + row[2] * light[2])));
  const xyz = [(0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505, 0.2126 * r + 0.7152 * g + 0.0722 * b, (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089];
  const [x, y, z] = xyz.map((t) => (t > 0.008856 ? Math.cbrt(t) : 7.787 * t + 16 / 116));
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

for (const dark of [false, true]) {
  test(`in the ${dark ? 'dark' : 'light'} theme all eyes tell kernel from user space, more from less, and can read the names`, () => {
    const palette = readPalette(style(dark));
    const of = (letter) => palette.fills.slice(palette.ranges[letter][0], palette.ranges[letter][0] + palette.ranges[letter][1]);
    for (const [name, eyes] of Object.entries(BLINDNESS)) {
      const far = (one, other) => Math.hypot(...seen(one, eyes).map((part, i) => part - seen(other, eyes)[i]));
      for (const kernel of of('k')) for (const user of of('u')) assert.ok(far(kernel, user) > 15, `${name} ${kernel} ${user}`);
      assert.ok(far(of('+').at(-1), of('-').at(-1)) > 25, name);
      assert.ok(far(of('+').at(-1), of('=')[0]) > 25 && far(of('-').at(-1), of('=')[0]) > 25, name);
    }
    palette.fills.forEach((fill, i) => {
      const [one, other] = [brightness(fill), brightness(palette.inks[i])].sort((a, b) => b - a);
      assert.ok((one + 0.05) / (other + 0.05) >= 4.5, `${fill} ${palette.inks[i]}`);
    });
  });
}
