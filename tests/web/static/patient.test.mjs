// Windows that follow a live recording: what takes longer than it takes to grow is waited for.
import assert from 'node:assert/strict';
import {test} from 'node:test';
import {createApi, isAbort} from '../../../src/exhume/web/static/api.js';
import {patient} from '../../../src/exhume/web/static/patient.js';
import {DEFAULTS, followed, wentAlong} from '../../../src/exhume/web/static/state.js';

/** A picture whose answers take `takes` ms, and what became of them; times are of a clock that only `pass` moves. */
function pictured(t, takes) {
  t.mock.timers.enable({apis: ['setTimeout']});
  let time = 0, to = 0;
  const seen = {asked: [], shown: [], ended: 0};
  const ask = (_address, {signal}) =>
    new Promise((resolve, reject) => {
      seen.asked.push(time);
      signal.addEventListener('abort', () => reject(signal.reason));
      setTimeout(() => resolve(new Response('{}')), takes());
    });
  const api = createApi(() => ({live: true, start_ns: '0', duration_us: to}), ask);
  const asking = patient(async () => {
    const wanted = to;
    try {
      await api.flame(0, wanted);
      seen.shown.push(wanted);
    } catch (error) {
      seen.ended += Number(isAbort(error));
    }
  }, () => time);
  const pass = async (ms) => {
    for (const end = time + ms; time < end; time += 100) {
      t.mock.timers.tick(100);
      for (let turn = 0; turn < 9; turn++) await new Promise(setImmediate);
    }
  };
  /** The recording grows every two seconds, for so many. */
  const grow = async (seconds) => {
    for (; seconds > 0; seconds -= 2) {
      to += 2e6;
      asking.follow(100);
      await pass(2000);
    }
  };
  return {seen, asking, pass, grow};
}

test('a picture of a live recording that takes three seconds appears, and the server has as long for others', async (t) => {
  const {seen, grow} = pictured(t, () => 3000);
  await grow(20);
  assert.equal(seen.ended, 0);
  assert.ok(seen.shown.length >= 3, `${seen.shown}`);
  seen.asked.slice(1).forEach((begun, at) => assert.ok(begun - seen.asked[at] >= 6000, `${seen.asked}`));
});

test('one that is fast follows every time, and the last growth is shown, too', async (t) => {
  let takes = 100;
  const {seen, grow, pass} = pictured(t, () => takes);
  await grow(8);
  assert.deepEqual(seen.shown, [2e6, 4e6, 6e6, 8e6]);
  takes = 5000;
  await grow(4);
  await pass(20_000);
  assert.deepEqual(seen.shown.slice(4), [10e6, 12e6]);
});

test('what a reader asks for ends what runs, and does not wait', async (t) => {
  let takes = 60_000;
  const {seen, asking, grow, pass} = pictured(t, () => takes);
  await grow(4);
  takes = 100;
  asking.ask(0);
  await grow(2);
  assert.deepEqual([seen.ended, seen.shown], [1, [6e6]]);
  takes = 4000;
  await grow(2);
  await pass(2000);
  await grow(2);
  assert.equal(seen.shown.length, 2, 'it rests as long as the last one took');
  takes = 100;
  asking.ask(0);
  await grow(2);
  assert.equal(seen.shown.at(-1), 12e6);
});

test('a window that only went with the recording is told from one that somebody chose', () => {
  const grown = (state, duration) => wentAlong({...state, ...followed(state, duration)}, state);
  const end = {...DEFAULTS, from: 50e6, to: 60e6, follow: 'end'};
  assert.equal(grown({...DEFAULTS, to: 60e6}, 62e6), true);
  assert.equal(grown(end, 62e6), true);
  assert.equal(wentAlong({...end, from: 55e6}, end), false, 'zoomed in at the end');
  assert.equal(wentAlong({...end, from: 0, follow: 'whole'}, end), false);
  assert.equal(wentAlong({...end, from: 10e6, to: 20e6, follow: ''}, {...end, follow: ''}), false);
});
