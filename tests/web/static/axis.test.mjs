// The time axis: zoom, pan, scale and telling of time. Run by node --test, in UTC.
import assert from 'node:assert/strict';
import {test} from 'node:test';
import {alike, around, between, day, inside, panned, plotOf, SHORTEST, stacked, ticks, told, toTime, toX, widened, zoomed} from '../../../src/exhume/web/static/axis.js';
import {moment} from '../../../src/exhume/web/static/flame_words.js';

const WALL = {has_wall: true, real_start_ms: Date.UTC(2025, 9, 9, 12, 4, 31, 500), start_ns: '1000000000000'};
const BOOT = {has_wall: false, real_start_ms: 0, start_ns: '12345678000000'};
const SECOND = 1e6;

test('a moment and its place on the screen are the same thing', () => {
  const span = {from: 100, to: 5100}, plot = plotOf(1142);
  for (const time of [100, 777, 5100]) assert.ok(Math.abs(toTime(toX(time, span, plot), span, plot) - time) < 1e-6);
  assert.equal(toX(100, span, plot), plot.left);
  assert.equal(toX(5100, span, plot), plot.left + plot.width);
});

test('a zoom keeps the moment under the pointer where it is', () => {
  const before = {from: 20 * SECOND, to: 60 * SECOND}, plot = plotOf(1200), time = 33 * SECOND;
  const after = zoomed(before, time, 0.3, 600 * SECOND);
  assert.equal(after.to - after.from, 12 * SECOND);
  assert.ok(Math.abs(toX(time, after, plot) - toX(time, before, plot)) < 0.01);
});

test('a zoom ends at a millisecond and at the whole recording', () => {
  const close = zoomed({from: 0, to: 2000}, 1000, 0.001, 600 * SECOND);
  assert.equal(close.to - close.from, SHORTEST);
  assert.deepEqual(zoomed({from: 1 * SECOND, to: 9 * SECOND}, 2 * SECOND, 100, 10 * SECOND), {from: 0, to: 10 * SECOND});
});

test('a pan keeps the length and stops at either end', () => {
  assert.deepEqual(panned({from: 10, to: 5010}, -500, 10000), {from: 0, to: 5000});
  assert.deepEqual(panned({from: 10, to: 5010}, 1e9, 10000), {from: 5000, to: 10000});
});

test('a recording that is shorter than the shortest window is shown whole', () => {
  assert.deepEqual(inside({from: 0, to: 50}, 300), {from: 0, to: 300});
});

test('a selection may be drawn backwards, and is cut to the recording', () => {
  assert.deepEqual(between(900, 100, 1000), {from: 100, to: 900});
  assert.deepEqual(between(900, 4000, 1000), {from: 900, to: 1000});
  assert.equal(between(100.2, 100.3, 1000), null);
  assert.equal(between(-50, -10, 1000), null);
});

test('an incident is shown with time before and after it', () => {
  const shown = around({from: 100 * SECOND, to: 106 * SECOND}, 600 * SECOND);
  assert.ok(shown.from <= 94 * SECOND && shown.to >= 109 * SECOND);
  assert.deepEqual(around({from: 0, to: 300_000}, 600 * SECOND).from, 0);
});

test('what is fetched covers what is shown and more, but no more than there is', () => {
  assert.deepEqual(widened({from: 0, to: 4000}, 4500), {from: 0, to: 4500});
});

test('windows that moved a little are alike, others are not', () => {
  assert.equal(alike({from: 0, to: 10}, {from: 0, to: 10}), 1);
  assert.equal(alike({from: 0, to: 10}, {from: 10, to: 20}), 0);
  assert.ok(alike({from: 0, to: 10}, {from: 2, to: 12}) > 0.6);
});

test('the scale is round by the clock on the wall, and its marks keep apart', () => {
  for (const length of [3000, 250_000, 2 * SECOND, 37 * SECOND, 600 * SECOND, 43_200 * SECOND, 30 * 86_400 * SECOND]) {
    const span = {from: 12_345, to: 12_345 + length}, marks = ticks(span, 1000, WALL);
    assert.ok(marks.length >= 2 && marks.length <= 11, `${length}: ${marks.length}`);
    assert.ok(marks.every(({time}) => time >= span.from && time <= span.to));
  }
  assert.deepEqual(ticks({from: 0, to: 60 * SECOND}, 600, WALL).slice(0, 2).map(({label}) => label), ['12:04:40', '12:04:50']);
  assert.equal(ticks({from: 0, to: 600 * SECOND}, 600, WALL)[0].label, '12:06');
});

test('moments are told as exactly as the scale needs', () => {
  assert.equal(told(0, WALL), '12:04:31.500');
  assert.equal(told(0, WALL, SECOND), '12:04:31');
  assert.equal(told(100_000, WALL, 100_000), '12:04:31.6');
  assert.equal(told(28.5 * SECOND, WALL, 60 * SECOND), '12:05');
});

test('without a time of day moments are seconds as dmesg shows them', () => {
  assert.equal(told(322_000, BOOT), '12346.000');
  assert.equal(told(0, BOOT, SECOND), '12346');
  assert.deepEqual(ticks({from: 0, to: 5 * SECOND}, 500, BOOT)[0], {time: 322_000, label: '12346'});
});

// Set on by an hour and a quarter of a second, between half a minute and a minute and a half after the begin.
const SET = {...WALL, clock: [[0, WALL.real_start_ms], [30 * SECOND, WALL.real_start_ms + 30_000], [90 * SECOND, WALL.real_start_ms + 3_690_250]]};

test('a clock that was set tells every moment by the nearest reading of it', () => {
  assert.deepEqual([0, 59 * SECOND, 60 * SECOND, 120 * SECOND].map((time) => told(time, SET)), ['12:04:31.500', '12:05:30.500', '13:05:31.750', '13:06:31.750']);
  assert.deepEqual([59 * SECOND, 120 * SECOND].map((time) => moment(SET, time)), ['12:05:30.500', '13:06:31.750']);
  const midnight = {...SET, clock: [[0, WALL.real_start_ms], [90 * SECOND, WALL.real_start_ms + 12 * 3_600_000]]};
  assert.deepEqual([0, 120 * SECOND].map((time) => day(time, midnight)), ['2025-10-09', '2025-10-10']);
});

test('the scale is round on either side of where the clock was set, and its marks keep apart', () => {
  const marks = ticks({from: 0, to: 120 * SECOND}, 1200, SET);
  assert.deepEqual(marks.map(({label}) => label), [
    '12:04:40', '12:04:50', '12:05:00', '12:05:10', '12:05:20', '12:05:30', '13:05:40', '13:05:50', '13:06:00', '13:06:10', '13:06:20', '13:06:30',
  ]);
  assert.deepEqual([marks[0], marks[6]].map(({time}) => time), [8.5 * SECOND, 68.25 * SECOND]);
  for (const width of [200, 700, 1200, 1700]) {
    const least = (120 * SECOND / width) * 96, times = ticks({from: 0, to: 120 * SECOND}, width, SET).map(({time}) => time);
    assert.ok(times.slice(1).every((time, at) => time - times[at] >= least), `${width}: ${times}`);
  }
  assert.deepEqual(ticks({from: 100 * SECOND, to: 120 * SECOND}, 200, SET).map(({label}) => label), ['13:06:20', '13:06:30']);
});

test('a clock that was never set is told as ever', () => {
  const span = {from: 0, to: 600 * SECOND};
  for (const clock of [[], [[0, WALL.real_start_ms]]]) {
    assert.deepEqual(ticks(span, 900, {...WALL, clock}), ticks(span, 900, WALL));
    assert.equal(told(5, {...WALL, clock}), told(5, WALL));
  }
  assert.deepEqual(ticks(span, 900, {...BOOT, clock: [[0, 0]]}), ticks(span, 900, BOOT));
});

test('labels never lie on one another, and the first get room first', () => {
  const labels = [{left: 0, right: 50}, {left: 40, right: 90}, {left: 45, right: 60}, {left: 50, right: 80}];
  assert.deepEqual(stacked(labels, 2), [0, 1, -1, 0]);
});
