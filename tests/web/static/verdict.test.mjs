// The verdict panel: what is judged, and where its links lead.
import assert from 'node:assert/strict';
import test from 'node:test';
import { DEFAULTS } from '../../../src/exhume/web/static/state.js';
import { evidence, judged, mountVerdict } from '../../../src/exhume/web/static/verdict.js';
import { chain, lists, longest, reached, spans } from '../../../src/exhume/web/static/verdict_parts.js';
import { Fake, fakePage, fakeStore } from './fake_page.mjs';

const SECOND = 1_000_000;
const DURATION = 600 * SECOND;
const whole = { ...DEFAULTS, to: DURATION };

test('the selection is judged, without one all of it, and what was judged stays while its links are followed', () => {
  assert.deepEqual(judged(whole, DURATION), { from: 0, to: DURATION, what: 'the whole recording' });
  assert.deepEqual(judged({ ...whole, selFrom: 5, selTo: 9 }, DURATION), { from: 5, to: 9, what: 'the selection' });
  const kept = judged({ ...whole, selFrom: 5, selTo: 9, judged: '100-200' }, DURATION);
  assert.deepEqual(kept, { from: 100, to: 200, what: 'what was selected before' });
  assert.equal(judged({ ...whole, judged: `0-${DURATION}` }, DURATION).what, 'the whole recording');
  assert.equal(judged({ ...whole, judged: 'nonsense' }, DURATION).what, 'the whole recording');
});

test('evidence is selected, on its core', () => {
  assert.deepEqual(evidence(whole, [60 * SECOND, 76 * SECOND, 39], DURATION), { selFrom: 60 * SECOND, selTo: 76 * SECOND, cores: [39] });
  assert.equal(evidence(whole, [1, 5 * SECOND, null], DURATION).cores, null);
  assert.equal(evidence(whole, [1, 5 * SECOND, -1], DURATION).cores, null);
});

test('what took no time is selected with a second around it, inside of the recording', () => {
  const near = { ...whole, to: 20 * SECOND };
  assert.deepEqual(evidence(near, [0, 0, null], DURATION), { selFrom: 0, selTo: SECOND / 2, cores: null });
  assert.deepEqual(evidence(near, [9 * SECOND, 9 * SECOND], DURATION), { selFrom: 8.5 * SECOND, selTo: 9.5 * SECOND, cores: null });
  for (const [from, to] of [[-9, 0], [-9, -3], [601, 605]]) {
    const { selFrom, selTo } = evidence(whole, [from * SECOND, to * SECOND], DURATION);
    assert.ok(selFrom >= 0 && selFrom < selTo && selTo <= DURATION, `${from} to ${to}: ${selFrom} to ${selTo}`);
  }
});

test('the window goes to evidence that lies outside of it', () => {
  const near = { ...whole, from: 100 * SECOND, to: 110 * SECOND };
  const patch = evidence(near, [60 * SECOND, 66 * SECOND, 39], DURATION);
  assert.deepEqual([patch.from, patch.to, patch.follow], [48 * SECOND, 78 * SECOND, '']);
  assert.equal(evidence(near, [101 * SECOND, 102 * SECOND, 39], DURATION).from, undefined);
});

test('the window goes to evidence that would hardly be seen in it', () => {
  const hours = { ...whole, to: 12 * 3600 * SECOND };
  const patch = evidence(hours, [3600 * SECOND, 3606 * SECOND, 39], hours.to);
  assert.deepEqual([patch.selFrom, patch.selTo, patch.from, patch.to], [3600, 3606, 3588, 3618].map((second) => second * SECOND));
  assert.equal(evidence(hours, [3600 * SECOND, 7200 * SECOND, 39], hours.to).from, undefined);
});

test('what a log tells of the time before the recording is no link', () => {
  assert.deepEqual([[-9, -3], [-9, 3], [0, 0]].map(reached), [false, true, true]);
});

test('of several times the longest is shown first; without spans the time of the finding', () => {
  assert.equal(longest([[0, 1], [5, 9], [20, 22]]), 1);
  const finding = { id: 'f1', kind: 'x', subject: '', severity: /** @type {const} */ ('info'), summary: '', evidence: [] };
  assert.deepEqual(spans({ ...finding, start_us: 3, end_us: 8 }), [[3, 8, null]]);
  assert.deepEqual(spans({ ...finding, spans: [[1, 2, 7]], start_us: 3, end_us: 8 }), [[1, 2, 7]]);
  assert.deepEqual(spans(finding), []);
});

/** A panel of a live recording of ten minutes, and what it asks to be judged. */
async function panel(t, answer) {
  t.mock.timers.enable({ apis: ['setTimeout', 'setInterval'] });
  fakePage();
  const about = { live: true, has_wall: false, duration_us: DURATION };
  const [host, store, asked] = [new Fake('section'), fakeStore(whole, about), []];
  const rest = async () => {
    t.mock.timers.tick(1000);
    await new Promise(setImmediate);
  };
  mountVerdict(host, store, { verdict: async (from, to) => answer(asked.push([from, to])) });
  await rest();
  return { host, store, asked, rest, grow: (by) => store.grow({ ...about, duration_us: DURATION + by }) };
}
const finding = { id: 'f1', kind: 'x', subject: '', severity: 'info', summary: 'held', evidence: [], spans: [[5 * SECOND, 9 * SECOND, 1]] };
const report = { health: 'healthy', findings: [finding], verdict: { cause: null, confidence: 0, summary: '', chain: [], ruled_out: [] } };

test('a link to evidence does not judge a live recording again', async (t) => {
  const { host, store, asked, rest, grow } = await panel(t, () => report);
  grow(2 * SECOND);
  host.named('verdict-link')[0].click();
  await rest();
  assert.deepEqual([store.get().selFrom, store.get().judged], [5 * SECOND, `0-${DURATION}`]);
  assert.deepEqual(asked, [[0, DURATION]]);
  store.set({ judged: '' });
  await rest();
  assert.deepEqual(asked[1], [5 * SECOND, 9 * SECOND], 'the selection is judged when that is asked for');
});

test('what was judged before a failure is judged again, and so is what is gone back to while another is being judged', async (t) => {
  const fails = async () => { throw new Error('too long'); };
  const answers = [async () => report, fails, async () => report, () => new Promise(() => {}), async () => report];
  const { store, asked, rest } = await panel(t, (count) => answers[count - 1]());
  for (const selFrom of [3, null, 4, null]) {
    store.set({ selFrom, selTo: selFrom && 9 });
    await rest();
  }
  assert.deepEqual(asked, [[0, DURATION], [3, 9], [0, DURATION], [4, 9], [0, DURATION]]);
});

test('what is gone back to before another is judged stays', async (t) => {
  const { store, asked, rest } = await panel(t, () => report);
  store.set({ selFrom: 3, selTo: 9 });
  store.set({ selFrom: null, selTo: null });
  await rest();
  assert.equal(asked.length, 1);
});

test('evidence is shown as the server spells it', () => {
  fakePage();
  const left = { what: 'time left', value: 0.04, unit: 'days', source: 'memory.stat', text: '58 min' };
  const row = chain({ ...report, findings: [{ ...finding, evidence: [left] }] }, () => {}).named('verdict-evidence')[0].children[1].children[0];
  assert.deepEqual(row.children.map((one) => one.textContent), ['time left', '58 min', 'memory.stat']);
});

test('what exhume can fix comes before the next steps, its other remedies after them, and advice against is marked', () => {
  fakePage();
  const remedies = [{ id: 'purge-zombies', summary: 'purge' }, { id: 'fix', summary: 'fix' }];
  const advice = [{ text: 'move work', because: 'full', cost: 'capacity', against: false }, { text: 'more cores', because: '', cost: '', against: true }];
  const made = lists({ ...report, verdict: { ...report.verdict, remedies, next: ['look'], advice } });
  const entries = (one) => one.children[1].children.map((item) => item.textContent);
  assert.deepEqual(entries(made[0]), ['fix', 'look', 'purge']);
  assert.deepEqual(entries(made[1]), ['move work: full (costs capacity)', 'Not: more cores']);
});
