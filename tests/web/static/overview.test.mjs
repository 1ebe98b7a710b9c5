// The whole recording at a glance: time that was not recorded is not idle, and nothing is drawn across it.
import assert from 'node:assert/strict';
import {test} from 'node:test';
import {curves, stretches} from '../../../src/exhume/web/static/overview.js';

/** What was painted and which lines were drawn, by colour. */
function drawn(overview) {
  const rectangles = [], lines = {};
  const context = {
    fillRect(...place) { rectangles.push([this.fillStyle, ...place]); },
    beginPath() { lines[this.strokeStyle] = []; },
    moveTo(x) { lines[this.strokeStyle].push([x]); },
    lineTo(x) { lines[this.strokeStyle].at(-1).push(x); },
    stroke() {},
    setLineDash() {},
  };
  curves(context, overview, {left: 100, right: 160, top: 20, bottom: 84}, {ground: 'ground', system: 'system', busy: 'busy', ink: 'ink'});
  return {rectangles, lines};
}

test('stretches that something is known of', () => {
  assert.deepEqual(stretches([null, 1, 0, null, null, 2]), [[1, 3], [5, 6]]);
  assert.deepEqual(stretches([null, null, null], [null, 0, null]), [[1, 2]]);
  assert.deepEqual(stretches([]), []);
});

test('columns that were not recorded have no ground, and no line goes across them', () => {
  const {rectangles, lines} = drawn({kernel: [1, 0, null, null, 0, 1], busy: [1, 1, null, null, 0.5, 1], zombies: [5, 6, null, null, null, 9]});
  assert.deepEqual(rectangles.filter(([colour]) => colour === 'ground'), [['ground', 100, 20, 20, 64], ['ground', 140, 20, 20, 64]]);
  assert.deepEqual(lines.busy, [[100, 105, 115, 120], [140, 145, 155, 160]]);
  assert.deepEqual(lines.ink, [[100, 105, 115, 120], [150, 155, 160]], 'a reading that is alone is seen');
});

test('a recording of logs alone knows nothing of its cores', () => {
  const {rectangles, lines} = drawn({kernel: [null, null], busy: [null, null], zombies: [null, null]});
  assert.deepEqual([rectangles, lines.ink], [[], undefined]);
});
