// The state of the page in the address: what is written is read back, and no address is an error.
import assert from 'node:assert/strict';
import {test} from 'node:test';
import {chosen, createStore, DEFAULTS, followed, format, originOf, parse, span} from '../../../src/exhume/web/static/state.js';

const START = '12345678000123', ORIGIN = originOf(START), DURATION = 600_000_000;
const WHOLE = {...DEFAULTS, from: 0, to: DURATION};

test('a page that was not touched has an empty address', () => {
  assert.equal(format(WHOLE, ORIGIN), '');
  assert.deepEqual(parse('', ORIGIN, DURATION), WHOLE);
});

test('every state is read back as it was', () => {
  const state = {
    ...WHOLE, from: DURATION - 1_234_567, to: DURATION, follow: 'end', selFrom: 2_000_000, selTo: 2_300_001, cores: [-1, 3, 39], comm: 'kube.*|a&b=c#', pid: '1,22', tid: '23,4',
    cgroup: '^/system.slice/', by: 'core', reverse: true, idle: true, search: 'mem_cgroup.*[;,]', base: '100-300100', judged: '5-77', zoom: ['a;b', 'c d', '<script>'],
    hide: ['swapper/0'], root: 'bottom', side: 'both', colour: 'napi_', theme: 'dark',
  };
  assert.deepEqual(parse(`#${format(state, ORIGIN)}`, ORIGIN, DURATION), state);
});

test('times in the address are seconds of the recording’s clock, so that they outlive its begin', () => {
  const text = format({...WHOLE, from: 1_500_000, to: 2_000_000, follow: ''}, ORIGIN);
  assert.equal(text, 'from=12347.178&to=12347.678');
  const later = ORIGIN + 1_000_000;
  assert.equal(parse(text, later, DURATION).from, 500_000);
});

test('what an address says wrongly is as by default', () => {
  const wrong = 'from=x&to=9&sel=5-1&cores=all&by=moon&theme=pink&base=7&zoom=&root=left&side=9&judged=1';
  assert.deepEqual(parse(wrong, ORIGIN, DURATION), {...WHOLE, zoom: ['']});
  assert.deepEqual(parse('from=1&to=2', ORIGIN, DURATION), WHOLE, 'a window outside of the recording');
  for (const odd of ['%', '#%E0%A4%A', '=&=&&', 'sel=-', `comm=${'x'.repeat(1e5)}`]) assert.doesNotThrow(() => parse(odd, ORIGIN, DURATION));
});

test('a window that reaches over the ends is cut', () => {
  const {from, to} = parse('from=1&to=99999', ORIGIN, DURATION);
  assert.deepEqual([from, to], [0, DURATION]);
});

test('a window that follows the end is at the end, however old its address is', () => {
  const text = format({...WHOLE, from: DURATION - 10_000_000, to: DURATION, follow: 'end'}, ORIGIN), later = DURATION + 180_000_000;
  assert.deepEqual(parse(text, ORIGIN, later), {...WHOLE, from: later - 10_000_000, to: later, follow: 'end'});
  assert.equal(parse(text, ORIGIN + later, 60_000_000).from, 50_000_000, 'also when the moments of the address are not kept any more');
  assert.deepEqual(followed({...WHOLE, from: 5, to: 10_000_005, follow: 'end'}, later), {from: later - 10_000_000, to: later});
  assert.deepEqual(followed(WHOLE, later), {from: 0, to: later});
  assert.deepEqual(followed({...WHOLE, follow: ''}, later), {});
});

test('what is looked at is the selection, or else the window', () => {
  assert.deepEqual(chosen(WHOLE), {from: 0, to: DURATION});
  assert.deepEqual(chosen({...WHOLE, selFrom: 5, selTo: 9}), {from: 5, to: 9});
  assert.deepEqual([span('off'), span('auto'), span('9-5'), span('5-9')], [null, null, null, [5, 9]]);
});

/** A store as a page has it that was opened with an address; and what was written to that. */
function opened(hash, about = {}) {
  const written = [];
  globalThis.location = {hash, pathname: '/', search: ''};
  globalThis.history = {pushState: (_, __, to) => written.push(to), replaceState: (_, __, to) => written.push(to)};
  globalThis.addEventListener = () => {};
  return {store: createStore({start_ns: START, duration_us: DURATION, ...about}), written};
}

test('the window of the command line is in the address at once, and all of it is, too, where that is something else', () => {
  const initial = {from: 1_000_000, to: 2_000_000};
  const {store, written} = opened('', {initial});
  assert.deepEqual(written, ['/#from=12346.678&to=12347.678']);
  store.set({from: 0, to: DURATION, follow: 'whole'}, {push: true});
  assert.equal(written[1], '/#follow=whole');
  assert.deepEqual(opened('#follow=whole', {initial}).store.get(), WHOLE, 'a reload shows all of it, too');
  assert.deepEqual(opened('', {}).written, []);
});

test('a recording of a single sample has a window that is not empty', () => {
  const {store} = opened('', {duration_us: 0});
  assert.deepEqual([store.about().duration_us, store.get().to], [1, 1]);
  store.grow({start_ns: START, duration_us: 0});
  assert.equal(store.about().duration_us, 1);
});

test('a pushed change is a step of the history, another one is not', () => {
  const steps = [];
  globalThis.location = {hash: '', pathname: '/', search: ''};
  globalThis.history = {pushState: (_, __, to) => steps.push(to), replaceState: () => {}};
  globalThis.addEventListener = () => {};
  const store = createStore({start_ns: START, duration_us: DURATION, initial: {from: 0, to: 1_000_000}});
  assert.equal(store.get().to, 1_000_000, 'what the command line asked for');
  const heard = [];
  const stop = store.subscribe((state, before) => heard.push([state.reverse, before.reverse]));
  store.set({reverse: true});
  store.set({selFrom: 0, selTo: 500_000}, {push: true});
  store.set({selFrom: 0, selTo: 500_000}, {push: true});
  stop();
  store.set({reverse: false}, {push: true});
  assert.equal(steps.length, 2);
  assert.deepEqual(heard, [[true, false], [true, true], [true, true]]);
});
