// Search in a flame graph by regular expression, and what is said about it.
import assert from 'node:assert/strict';
import test from 'node:test';
import { find } from '../../../src/exhume/web/static/flame_find.js';
import { layOut } from '../../../src/exhume/web/static/flame_layout.js';
import { refused } from '../../../src/exhume/web/static/flame_patterns.js';
import { exactly, search } from '../../../src/exhume/web/static/flame_search.js';
import { lines, part } from '../../../src/exhume/web/static/flame_words.js';
import { across, compile, shortened, told, viewOf } from '../../../src/exhume/render/static/flame_zoom.js';
import { HOSTILE, cpuTime, hostile, tree } from './flame_trees.mjs';

const layout = layOut(tree([
  [0, 'kubelet', 'g', 60], [1, 'mem_cgroup_iter', 'k', 40], [2, 'mem_cgroup_read', 'k', 30], [1, 'poll', 'k', 20],
  [0, 'other', 'g', 40], [1, 'mem_cgroup_iter', 'k', 10],
]));

test('the share counts a match inside of a match once', () => {
  const found = search(layout, 'mem_cgroup');
  assert.equal(found.frames, 3);
  assert.equal(found.share, 0.5);
  assert.equal(told(found), '50.0% matched in 3 frames');
});

test('the share is of the zoomed frame', () => {
  const found = search(layout, 'mem_cgroup_iter', find(layout, ['kubelet']));
  assert.equal(told(found), '66.7% matched in 1 frame');
  assert.equal(search(layout, 'kubelet', find(layout, ['kubelet', 'poll'])).share, 1);
});

test('the root is no match, whatever it is called', () => {
  assert.equal(told(search(layout, 'all')), 'nothing matches');
  assert.equal(search(layout, 'all').names.includes(1), false);
});

test('a view is as wide as its frame, and what is outside lies at its edges', () => {
  const kubelet = viewOf(layout, find(layout, ['kubelet']));
  assert.deepEqual(kubelet, { from: 0, to: 60 });
  assert.deepEqual([0, 30, 60, 100, -5].map((at) => across(at, kubelet, 600)), [0, 300, 600, 600, 0]);
  assert.deepEqual(viewOf({ start: [7], width: [0], parent: [-1], end: [1] }, 0), { from: 7, to: 8 });
  assert.deepEqual(['function', 'functions', '😀😀😀😀'].map((name) => shortened(name, 8)), ['function', 'functio…', '😀😀😀😀']);
  assert.equal(shortened('😀😀😀😀', 3), '😀😀…');
});

test('small letters match large ones, large ones only themselves', () => {
  assert.equal(search(layout, 'KUBE').frames, 0);
  assert.equal(told(search(layout, 'KUBE')), 'nothing matches');
  assert.ok(compile('kube').regex.test('KUBE'));
  assert.ok(compile('\\S+kube').regex.test('xKUBE'));
});

test('what is no regular expression is said, and nothing is thrown', () => {
  const found = search(layout, '(unclosed');
  assert.equal(found.names, null);
  assert.match(told(found), /^not a regular expression: .*Unterminated group/i);
  assert.equal(told(search(layout, '')), '');
});

test('an expression that would take for ever is refused, one that people write is not', () => {
  const nested = ['(a+)+$', '(a|aa)*b', '((a)*)*', '(?:x+y?)+', '(a{1,})*', '([a-z]+)*$', '(a*){20}', '(?<n>a|b)+', '(a|a?)+?'];
  const many = ['.?'.repeat(60) + '~', '(a|aa){10}', '(a|aa){5}(b|bb){5}', '.*.*.*.*~', 'a+b+c+d', '.{0,40}.{0,40}~', '.{1,2000}', '(?:(?:\\b){900}){900}', '((){99}|){99}'];
  for (const pattern of [...nested, ...many, '(a)\\1', '(?<n>a)\\k<n>']) assert.match(refused(pattern), /for ever/, pattern);
  const fine = [
    'mem_cgroup|numa_stat', '^do_.*read$', '(foo|bar)_baz', '\\(a+\\)+', '[(+]+', '(vfs_)?read', 'a+b+c', '(ab)+', '(x', 'x{2}', '[0-9a-f]{8,16}',
    '(do|ksys)_.*(read|write)$', '(?:vfs|ksys)_(?=read|write)', '.*\\bread_.*', 'a{b', '\\\\1', 'net_rx_action|napi_|__netif_receive|tcp_|udp_|ip_rcv|net_tx',
  ];
  for (const pattern of fine) assert.equal(refused(pattern), '', pattern);
  assert.match(told(search(layout, '(a+)+$')), /for ever/);
});

test('what is not refused ends soon with any name', (t) => {
  t.mock.method(performance, 'now', cpuTime);  // the search itself gives up by this clock
  const long = layOut(tree([[0, 'a'.repeat(5000), 'g', 1], [0, `${'ab'.repeat(250)}`, 'g', 1]]));
  for (const pattern of ['.*.*~', '(.|..)(.|..).*.*~', '.?.?.?.?.?.?.*~', '.{0,900}~', '(a|aa){9}~', '(?:a?){8}.?~']) {
    const started = cpuTime();
    if (!refused(pattern)) assert.equal(told(search(long, pattern)), 'nothing matches');
    assert.ok(cpuTime() - started < 1000, pattern);
  }
});

test('any name can be searched for exactly', () => {
  const strange = layOut(hostile());
  for (const name of strange.names) assert.ok(compile(exactly(name)).regex === null || compile(exactly(name)).regex.test(name), name);
  assert.ok(!compile(exactly('a.c')).regex.test('abc'));
  const long = layOut(tree([[0, 'long'.repeat(200), 'g', 1], [0, 'b', 'g', 1]]));
  assert.equal(search(long, exactly(long.names[long.name[1]])).frames, 1);
  assert.equal(HOSTILE.length > 5, true);
});

test('a frame is told with its shares and its change', () => {
  const compared = layOut(tree([[0, 'a', 'g', 80, 10], [1, 'walk', 'k', 60, 5, 'vmlinux'], [1, 'gone', 'k', 0, 5], [0, 'b', 'g', 20, 90]]));
  const zoomed = find(compared, ['a']);
  assert.deepEqual(lines(compared, find(compared, ['a', 'walk']), zoomed),
    ['walk', 'kernel · vmlinux', '60 samples, 60.0% of all, 75.0% of a', 'base 5.0%: +55.0 points, 12 times its share']);
  assert.match(lines(compared, find(compared, ['a', 'gone']), 0).join(' '), /only in the base: 5 samples, 5.0%/);
  assert.equal(part(1), '100%');
  assert.equal(part(0.00123), '0.12%');
});
