// A live recording: looked at again and again, also when whoever writes it is started anew.
import assert from 'node:assert/strict';
import {test} from 'node:test';
import {createApi} from '../../../src/exhume/web/static/api.js';
import {DEFAULTS} from '../../../src/exhume/web/static/state.js';
import {watch} from '../../../src/exhume/web/static/watch.js';
import {fakeStore} from './fake_page.mjs';

/** A page that watches; `answers` are those of /api/about, an error one that does not come. */
function watched(t, first, answers) {
  t.mock.timers.enable({apis: ['setTimeout']});
  const about = {start_ns: '0', ...first}, asked = [];
  const store = fakeStore({...DEFAULTS, to: first.duration_us}, about);
  const api = createApi(store.about, async (address) => {
    asked.push(address.split('?')[0]);
    const answer = address === 'api/about' ? {...about, ...answers.shift()} : {total: asked.length};
    if (answer.gone) throw new TypeError('fetch failed');
    return new Response(JSON.stringify(answer));
  });
  watch(api, store);
  const after = async (time) => {
    t.mock.timers.tick(time);
    for (let turn = 0; turn < 9; turn++) await new Promise(setImmediate);
  };
  return {store, api, asked, after};
}

test('a recorder that is started anew is live again, and what was kept in between is asked for anew', async (t) => {
  const {store, api, asked, after} = watched(t, {live: true, duration_us: 5e6}, [
    {live: false, duration_us: 6e6}, {live: false, duration_us: 6e6}, {live: true, duration_us: 30e6}, {live: true, duration_us: 32e6},
  ]);
  await after(2000);
  assert.equal(store.about().live, false);
  const kept = await api.flame(0, 6e6);
  assert.equal(await api.flame(0, 6e6), kept);
  await after(2000);
  assert.equal(asked.filter((path) => path === 'api/about').length, 1, 'less often while it does not grow');
  await after(8000);
  await after(10_000);
  assert.deepEqual([store.about().live, store.get().to], [true, 30e6]);
  assert.notDeepEqual(await api.flame(0, 6e6), kept);
  await after(2000);
  assert.equal(store.get().to, 32e6);
});

test('that the server does not answer is told of a recording that grows', async (t) => {
  const {store, after} = watched(t, {live: true, duration_us: 5e6}, [
    {gone: true}, {live: true, duration_us: 6e6}, {live: false, duration_us: 6e6}, {gone: true}, {live: true, duration_us: 9e6},
  ]);
  const told = [];
  for (const time of [2000, 2000, 2000, 10_000, 10_000]) {
    await after(time);
    told.push(store.status.get().text);
  }
  assert.match(told.shift(), /^The server does not answer/);
  assert.deepEqual(told, ['', '', '', '']);
  assert.equal(store.get().to, 9e6);
});

test('a recording that never grew is not looked at again', async (t) => {
  const {asked, after} = watched(t, {live: false, duration_us: 5e6}, []);
  await after(60_000);
  assert.deepEqual(asked, []);
});
