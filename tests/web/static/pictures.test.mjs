// The parts of the pictures of time that draw nothing: order and place of strips, merging of columns, flags, lists of cores.
import assert from 'node:assert/strict';
import {test} from 'node:test';
import {bytes, createApi, isAbort} from '../../../src/exhume/web/static/api.js';
import {mixed, pixel, ramp, rgb} from '../../../src/exhume/web/static/colours.js';
import {marked, plain} from '../../../src/exhume/web/static/canvas.js';
import {condensed} from '../../../src/exhume/web/static/heat.js';
import {blended, layout, ordered, orderOf} from '../../../src/exhume/web/static/strips.js';
import {coresOf} from '../../../src/exhume/web/static/toolbar.js';
import {clustered} from '../../../src/exhume/web/static/flags.js';

const strips = [[39, 0.9], [7, 0.5], [0, 0.1]].map(([core, odd]) => ({core, odd}));
const turned = strips.map(({core, odd}) => ({core, odd: 1 - odd})).reverse();

test('the oddest core comes first, and those that are filtered for before it', () => {
  assert.deepEqual(ordered(strips, null, null, {from: 0, to: 10}).shown, [39, 7, 0]);
  assert.deepEqual(ordered(strips, [0], null, {from: 0, to: 10}).shown, [0, 39, 7]);
});

test('of two cores, as odd as each other, the one that the server puts first is on top', () => {
  const two = [{core: 1, odd: 0.75}, {core: 0, odd: 0.75}];
  assert.deepEqual(ordered(two, null, null, {from: 0, to: 10}).shown, [1, 0]);
});

test('strips keep their order while the window moves a little, and take a new one when it jumps', () => {
  const {kept} = ordered(strips, null, null, {from: 0, to: 10});
  assert.deepEqual(ordered(turned, null, kept, {from: 1, to: 11}).shown, [39, 7, 0]);
  assert.deepEqual(ordered(turned, null, kept, {from: 100, to: 110}).shown, [0, 7, 39]);
});

test('no order is kept from an answer that is not whole, nor for a window that grows', () => {
  const state = {cores: null, follow: '', from: 0, to: 10};
  const first = orderOf({cores: strips, ready: 0.03}, state, null);
  assert.deepEqual(first, {shown: [39, 7, 0], kept: null});
  const second = orderOf({cores: turned, ready: 1}, state, first.kept);
  assert.deepEqual(second.shown, [0, 7, 39]);
  assert.deepEqual(orderOf({cores: strips}, state, second.kept).shown, [0, 7, 39], 'a whole one is kept');
  assert.deepEqual(orderOf({cores: strips, ready: 0.5}, state, second.kept).shown, [39, 7, 0]);
  assert.deepEqual(orderOf({cores: strips}, {...state, follow: 'whole'}, second.kept).shown, [39, 7, 0]);
});

test('96 cores fit on a screen, and no strip lies on another', () => {
  const {rows, bottom} = layout(Array.from({length: 96}, (_, core) => core), 24);
  assert.ok(bottom < 500);
  rows.slice(1).forEach((row, at) => assert.ok(row.top >= rows[at].top + rows[at].height));
  assert.ok(layout([0, 1], 24).rows.every((row) => row.tall));
});

test('a busy core has the colour of its state, an idle one that of the ground', () => {
  const ground = [10, 20, 30], parts = [[200, 0, 0], [0, 200, 0], [0, 0, 200], [9, 9, 9]];
  const column = (...shares) => blended(ground, parts, shares.map((share) => Uint8Array.of(share)), 0);
  assert.equal(column(0, 0, 0, 0), pixel(ground));
  assert.equal(column(254, 0, 0, 0), pixel(parts[0]));
  assert.equal(column(127, 127, 0, 0), pixel(mixed(parts[0], parts[1], 0.5)));
});

test('merged columns keep the hottest cell', () => {
  const cells = new Uint8Array(5 * 2);
  cells[3 * 2 + 1] = 250;
  const small = condensed(cells, 5, 2, 2);
  assert.deepEqual([small.columns, small.merged], [2, 4]);
  assert.equal(small.cells[0 * 2 + 1], 250);
  assert.equal(condensed(cells, 5, 2, 99).cells, cells);
});

test('flags that would lie on one another are one that says the worst', () => {
  const flags = [[10, 'info'], [14, 'critical'], [60, 'warning']].map(([t, severity]) => ({t, severity, kind: '', text: severity}));
  const found = clustered(flags, (time) => time);
  assert.deepEqual(found.map(({x, worst, flags: some}) => [x, worst.text, some.length]), [[10, 'critical', 2], [60, 'warning', 1]]);
});

test('a ramp goes from the ground to the most, and one sample is seen', () => {
  const colours = ramp(['#ffffff', '#ff0000', '#000000']);
  assert.equal(colours[0], pixel(rgb('#ffffff')));
  assert.equal(colours[255], pixel(rgb('#000000')));
  assert.ok(((colours[1] >> 8) & 255) < 230);
});

test('lists of cores are read as people type them', () => {
  assert.deepEqual(coresOf('8, 0-3'), [0, 1, 2, 3, 8]);
  assert.deepEqual(coresOf('-1, 3'), [-1, 3]);
  assert.equal(coresOf('all'), null);
  assert.equal(coresOf(''), null);
});

test('what is not seen or turns the line around is made visible', () => {
  assert.equal(plain('a\u001b[31m\u202eb\nc'), 'a\ufffd[31m\ufffdb\ufffdc');
});

test('bits', () => {
  assert.deepEqual([0, 9, 10].map((at) => marked(Uint8Array.of(1, 2), at)), [true, true, false]);
  assert.deepEqual([...bytes('AP8=')], [0, 255]);
});

test('a newer request with the same key ends the older, and answers are kept', async () => {
  const asked = [];
  const ask = (address, {signal}) =>
    new Promise((resolve, reject) => {
      asked.push(address);
      signal.addEventListener('abort', () => reject(signal.reason));
      setTimeout(() => resolve(new Response(JSON.stringify({total: asked.length}))), 5);
    });
  const api = createApi(() => ({live: false, start_ns: '1000', duration_us: 1e6}), ask);
  const first = api.flame(0, 10).catch((error) => error);
  const second = await api.flame(0, 20, {cores: [1, 2], base: '5-9'});
  assert.ok(isAbort(await first));
  assert.equal(asked[1], 'api/flame?from=1000&to=21000&cores=1%2C2&idle=0&base_from=6000&base_to=10000');
  assert.equal(await api.flame(0, 20, {cores: [1, 2], base: '5-9'}), second);
  assert.equal(asked.length, 2);
});

test('what is still being imported is asked for until it is there', async () => {
  const answers = [202, 202, 200], told = [];
  const ask = async () => {
    const status = answers.shift();
    return new Response(JSON.stringify(status === 202 ? {not_yet: `${answers.length} to go`, share: 0.5} : {total: 7}), {status});
  };
  const api = createApi(() => ({live: false, start_ns: '0', duration_us: 1}), ask, (sentence) => told.push(sentence));
  assert.deepEqual(await api.flame(0, 1), {total: 7});
  assert.deepEqual(told, ['2 to go', '1 to go', '']);
});

test('what the server says went wrong reaches the reader', async () => {
  const api = createApi(() => ({live: true, start_ns: '0', duration_us: 1}), async () => new Response('{"error": "pid is not a list"}', {status: 400}));
  await assert.rejects(api.heat(0, 1), {message: 'pid is not a list', status: 400});
  const down = createApi(() => ({live: true, start_ns: '0', duration_us: 1}), async () => { throw new TypeError('fetch failed'); });
  await assert.rejects(down.verdict(0, 1), /is exhume view still running/);
});
