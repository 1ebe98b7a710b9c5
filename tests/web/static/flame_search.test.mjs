// Search in a flame graph by regular expression, and what is said about it.
import assert from 'node:assert/strict';
import test from 'node:test';
import { find } from '../../../src/exhume/web/static/flame_find.js';
import { layOut } from '../../../src/exhume/web/static/flame_layout.js';
import { compile, endless, exactly, search, told } from '../../../src/exhume/web/static/flame_search.js';
import { lines, percent } from '../../../src/exhume/web/static/flame_words.js';
import { HOSTILE, hostile, tree } from './flame_trees.mjs';

const layout = layOut(tree([
  [0, 'kubelet', 'g', 60], [1, 'mem_cgroup_iter', 'k', 40], [2, 'mem_cgroup_read', 'k', 30], [1, 'poll', 'k', 20],
  [0, 'other', 'g', 40], [1, 'mem_cgroup_iter', 'k', 10],
]));

test('the share counts a match inside of a match once', () => {
  const found = search(layout, 'mem_cgroup');
  assert.equal(found.frames, 3);
  assert.equal(found.share, 0.5);
  assert.equal(told(found), '50.0 % matched in 3 frames');
});

test('the share is of the zoomed frame', () => {
  const found = search(layout, 'mem_cgroup_iter', find(layout, ['kubelet']));
  assert.equal(told(found), '66.7 % matched in 1 frame');
  assert.equal(search(layout, 'kubelet', find(layout, ['kubelet', 'poll'])).share, 1);
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
  for (const pattern of ['(a+)+$', '(a|aa)*b', '((a)*)*', '(?:x+y?)+', '(a{1,})*', '([a-z]+)*$', '(a*){20}']) assert.ok(endless(pattern), pattern);
  for (const pattern of ['mem_cgroup|numa_stat', '^do_.*read$', '(foo|bar)_baz', '\\(a+\\)+', '[(+]+', '(vfs_)?read', 'a+b+c', '(ab)+', '(x']) assert.ok(!endless(pattern), pattern);
  assert.match(told(search(layout, '(a+)+$')), /for ever/);
});

test('any name can be searched for exactly', () => {
  const strange = layOut(hostile());
  for (const name of strange.names) assert.ok(compile(exactly(name)).regex === null || compile(exactly(name)).regex.test(name), name);
  assert.ok(!compile(exactly('a.c')).regex.test('abc'));
  assert.equal(HOSTILE.length > 5, true);
});

test('a frame is told with its shares and its change', () => {
  const compared = layOut(tree([[0, 'a', 'g', 80, 10], [1, 'walk', 'k', 60, 5, 'vmlinux'], [1, 'gone', 'k', 0, 5], [0, 'b', 'g', 20, 90]]));
  const zoomed = find(compared, ['a']);
  assert.deepEqual(lines(compared, find(compared, ['a', 'walk']), zoomed),
    ['walk', 'kernel · vmlinux', '60 samples, 60.0 % of all, 75.0 % of a', 'base 5.0 %: +55.0 points, 12 times its share']);
  assert.match(lines(compared, find(compared, ['a', 'gone']), 0).join(' '), /only in the base: 5 samples, 5.0 %/);
  assert.equal(percent(1), '100 %');
  assert.equal(percent(0.00123), '0.12 %');
});
