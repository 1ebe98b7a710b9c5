// What the page lists and says in words: what happened in a window, incidents, boots, downloads; and what nothing is known of.
import assert from 'node:assert/strict';
import {test} from 'node:test';
import {createApi} from '../../../src/exhume/web/static/api.js';
import {coreName, uncovered} from '../../../src/exhume/web/static/axis.js';
import {legal} from '../../../src/exhume/web/static/flame_svg.js';
import {happened, selected} from '../../../src/exhume/web/static/happened.js';
import {allUnknown} from '../../../src/exhume/web/static/heat.js';
import {incidentsTold} from '../../../src/exhume/web/static/overview.js';
import {bootOf} from '../../../src/exhume/web/static/toolbar.js';

const CLOCK = {has_wall: false, real_start_ms: 0, start_ns: '700000000000000'};
const LANES = {
  flags: [{t: 5_000_000, severity: 'critical', kind: 'nic', text: 'paused\u001b[31m'}, {t: 99_000_000, severity: 'info', kind: 'nic', text: 'later'}],
  bars: [{title: 'eth0 late', spans: [[1_000_000, 4_000_000, 39, 'kubelet had the core'], [2_000_000, 2_000_100, -1, '']]}],
  restarts: [{t: 3_000_000, unit: 'ecs.service', times: 1}, {t: 3_500_000, unit: 'ecs.service', times: 3}],
  resets: [{t: 5_000_000, device: 'eth0', reason: 'keep-alive'}, {t: 6_000_000, device: 'eth1', reason: ''}],
};

test('log lines, waits, resets and restarts of the window are listed by time', () => {
  const {entries, more} = happened(LANES, {from: 0, to: 10_000_000}, CLOCK);
  assert.deepEqual(entries.map(({text}) => text), [
    '700001.000  eth0 late, 3 s, core 39  kubelet had the core', '700002.000  eth0 late, 100 µs  ', '700003.000  ecs.service restarted',
    '700003.500  ecs.service restarted 3 times', '700005.000  critical  nic: paused\ufffd[31m', '700005.000  eth0 reset, reason: keep-alive', '700006.000  eth1 reset',
  ]);
  assert.equal(more, 0);
});

test('the list has an end, and says how many are left out', () => {
  const flags = Array.from({length: 250}, (_, t) => ({t, severity: 'info', kind: 'x', text: ''}));
  const {entries, more} = happened({...LANES, flags, bars: [], restarts: [], resets: []}, {from: 0, to: 1000}, CLOCK);
  assert.deepEqual([entries.length, more], [200, 50]);
});

test('an entry selects its time, a moment a second around it', () => {
  assert.deepEqual(selected({from: 1_000_000, to: 4_000_000, text: ''}, 10_000_000), {from: 1_000_000, to: 4_000_000});
  assert.deepEqual(selected({from: 100_000, to: 100_000, text: ''}, 10_000_000), {from: 0, to: 600_000});
});

test('that no incident was found is only said where they were looked for', () => {
  const none = {incidents: [], incidents_ready: true};
  assert.match(incidentsTold(none), /^No incident was found/);
  assert.match(incidentsTold({...none, incidents_failed: true}), /could not be looked for/);
  assert.match(incidentsTold({...none, incidents_ready: false}), /^Looking/);
  assert.equal(incidentsTold({incidents: [{judged: true}], incidents_ready: true, incidents_failed: true}), 'Later ones could not be looked for.');
});

test('incidents that were not judged, or not listed, are counted', () => {
  const [one, open] = [{judged: true}, {judged: false}];
  assert.equal(incidentsTold({incidents: [one, one], incidents_ready: true}), '');
  assert.equal(
    incidentsTold({incidents: [one, open, open], incidents_ready: true, incidents_more: 7}),
    '10 incidents were found, 2 of them not judged yet: go to one, and the verdict is of it; 7 of them not listed here.',
  );
  assert.equal(incidentsTold({incidents: [one], incidents_ready: true, incidents_more: 1}), '2 incidents were found, 1 of them not listed here.');
});

test('merged columns are unknown where all of them are', () => {
  const unknown = Uint8Array.of(0b00111101);
  assert.deepEqual([0, 1, 2].map((column) => allUnknown(unknown, 6, column, 2)), [false, true, true]);
  assert.equal(allUnknown(unknown, 5, 1, 4), true, 'the last one is of fewer columns');
});

test('what an answer does not cover is told apart from what it says nothing happened in', () => {
  assert.deepEqual(uncovered({from: 10, to: 20}, {from: 12, to: 18}), []);
  assert.deepEqual(uncovered({from: 10, to: 20}, {from: 5, to: 25}), [{from: 5, to: 10}, {from: 20, to: 25}]);
  assert.deepEqual(uncovered({from: 10, to: 20}, {from: 30, to: 40}), [{from: 30, to: 40}]);
  assert.deepEqual(uncovered(null, {from: 1, to: 2}), [{from: 1, to: 2}]);
});

test('a download that fails says why, one that does not has its name', async () => {
  const answers = [
    new Response('{"error": "that is too much for a download"}', {status: 413}),
    new Response('a;b 1\n', {headers: {'Content-Disposition': 'attachment; filename="exhume-3s.folded"'}}),
  ];
  const api = createApi(() => ({live: false, start_ns: '0', duration_us: 1}), async () => answers.shift());
  await assert.rejects(api.download('api/export?format=csv'), {message: 'that is too much for a download', status: 413});
  const {blob, name} = await api.download('api/export?format=folded');
  assert.deepEqual([await blob.text(), name], ['a;b 1\n', 'exhume-3s.folded']);
});

test('incidents are by time, whatever order they came in, and asked for again where they could not be looked for', async () => {
  const answers = [{incidents: [], incidents_ready: true, incidents_failed: true}, {incidents: [{start: 9}, {start: 2}], incidents_ready: true}];
  const api = createApi(() => ({live: false, start_ns: '0', duration_us: 1}), async () => new Response(JSON.stringify(answers.shift())));
  assert.deepEqual((await api.overview(50)).incidents, []);
  assert.deepEqual((await api.overview(50)).incidents, [{start: 2}, {start: 9}]);
});

test('which boot of several is shown, and cores that nobody knows', () => {
  assert.equal(bootOf({boots: ['a', 'b', 'c'], node: {boot_id: 'b'}}), 'boot 2 of 3 (--boot)');
  assert.equal(bootOf({boots: ['a'], node: {boot_id: 'a'}}), '');
  assert.deepEqual([coreName(39), coreName(-1)], ['core 39', 'core unknown']);
});

test('nothing that XML forbids gets into a picture', () => {
  assert.equal(legal('a\u0000\u001b\ud800\uffff\n\tb\u{1f525}'), 'a\ufffd\ufffd\ufffd\ufffd\n\tb\u{1f525}');
});
