// The tree of a flame graph: widths, rows, what is hidden, what changed.
import assert from 'node:assert/strict';
import test from 'node:test';
import { find, firstInRow, frameAt, nearest, path, rowsSeen, step } from '../../../src/exhume/web/static/flame_find.js';
import { change, layOut, shown } from '../../../src/exhume/web/static/flame_layout.js';
import { cpuTime, hostile, tree } from './flame_trees.mjs';

const small = () => tree([
  [0, 'kubelet', 'g', 70], [1, 'read', 'u', 60], [2, 'vfs_read', 'k', 50], [3, 'walk', 'k', 45], [2, 'copy', 'k', 10], [1, 'idle', 'u', 10],
  [0, 'python3', 'g', 30], [1, 'main', 'p', 30],
]);

test('frames stand below their callers, side by side, as wide as their samples', () => {
  const layout = layOut(small());
  const names = [...layout.name].map((name) => layout.names[name]);
  assert.deepEqual(names, ['all', 'kubelet', 'read', 'vfs_read', 'walk', 'copy', 'idle', 'python3', 'main']);
  assert.deepEqual([...layout.start], [0, 0, 0, 0, 0, 50, 60, 70, 70]);
  assert.deepEqual([...layout.width], [100, 70, 60, 50, 45, 10, 10, 30, 30]);
  assert.deepEqual([...layout.parent], [-1, 0, 1, 2, 3, 2, 1, 0, 7]);
  assert.deepEqual([...layout.end], [9, 7, 6, 5, 5, 6, 7, 9, 9]);
  assert.equal(layout.rows, 5);
});

test('a frame is found by its place, and nothing where there is none', () => {
  const layout = layOut(small());
  assert.equal(layout.names[layout.name[frameAt(layout, 3, 49)]], 'vfs_read');
  assert.equal(layout.names[layout.name[frameAt(layout, 3, 50)]], 'copy');
  assert.equal(frameAt(layout, 4, 46), -1);
  assert.equal(frameAt(layout, 9, 0), -1);
  assert.equal(frameAt(layout, -1, 0), -1);
  assert.equal(firstInRow(layout, 1, 70), layout.rowStart[1] + 1);
});

test('a path leads to its frame, and the longest known part of a strange one to its end', () => {
  const layout = layOut(small());
  const walk = find(layout, ['kubelet', 'read', 'vfs_read', 'walk']);
  assert.deepEqual(path(layout, walk), ['kubelet', 'read', 'vfs_read', 'walk']);
  assert.equal(find(layout, ['kubelet', 'gone']), -1);
  assert.equal(nearest(layout, ['kubelet', 'read', 'gone', 'walk']), find(layout, ['kubelet', 'read']));
  assert.equal(nearest(layout, ['gone']), 0);
});

test('what is hidden is gone from its callers and from the whole', () => {
  const layout = layOut(small(), { hide: ['walk', 'python3'] });
  assert.equal(layout.total, 25);
  assert.equal(layout.value[find(layout, ['kubelet', 'read', 'vfs_read'])], 5);
  assert.equal(layout.width[find(layout, ['python3', 'main'])], 0);
  assert.equal(layout.hiddenCount, 2);
  assert.equal(layout.rows, 4);
});

test('keys go to the caller, the widest callee and the neighbours, and stay at an edge', () => {
  const layout = layOut(small());
  const read = find(layout, ['kubelet', 'read']);
  assert.equal(step(layout, read, 'caller'), find(layout, ['kubelet']));
  assert.equal(step(layout, read, 'callee'), find(layout, ['kubelet', 'read', 'vfs_read']));
  assert.equal(step(layout, read, 'before'), read);
  assert.equal(step(layout, read, 'after'), find(layout, ['kubelet', 'idle']));
  assert.equal(step(layout, 0, 'caller'), 0);
});

test('a comparison shows frames of one side by the widths of that side', () => {
  const data = tree([[0, 'a', 'g', 80, 20], [1, 'new', 'k', 80, 0], [1, 'old', 'k', 0, 20], [0, 'b', 'g', 20, 20]]);
  const wide = (side, names) => { const layout = layOut(data, { side }); return layout.width[find(layout, names)]; };
  assert.equal(wide('new', ['a', 'new']), 80);
  assert.equal(wide('new', ['a', 'old']), 0);
  assert.equal(wide('base', ['a', 'old']), 20);
  assert.equal(wide('base', ['a', 'new']), 0);
  assert.equal(wide('both', ['a', 'new']), 0.4);
  assert.equal(wide('both', ['a', 'old']), 0.25);
  const layout = layOut(data);
  assert.ok(change(layout, find(layout, ['a', 'new'])).relative > 0.9);
  assert.ok(change(layout, find(layout, ['a', 'old'])).relative < -0.8);
  assert.equal(change(layOut(small()), 1), null);
});

test('a single new sample is not shown as a great change', () => {
  const data = tree([[0, 'a', 'g', 999, 1000], [0, 'once', 'k', 1, 0]]);
  const layout = layOut(data);
  assert.ok(change(layout, find(layout, ['once'])).relative < 0.3);
});

test('rows that only have frames too narrow to see are not shown', () => {
  const layout = layOut(small());
  assert.equal(rowsSeen(layout, 0, 100, 1), 5);
  assert.equal(rowsSeen(layout, 0, 100, 46), 4);
  assert.equal(rowsSeen(layout, 70, 100, 1), 3);
});

test('names keep their markup as text and lose what cannot be seen', () => {
  assert.equal(shown('<img src=x onerror=alert(1)>'), '<img src=x onerror=alert(1)>');
  assert.equal(shown('a\u0000b\u202ec\u001b[31m'), 'a\ufffdb\ufffdc\ufffd[31m');
  assert.ok(shown('x'.repeat(100000)).length <= 1001);
  const layout = layOut(hostile());
  for (const name of layout.names) assert.doesNotMatch(name, /[\u0000-\u001f\u202e]/);
  assert.equal(layout.count, hostile().depth.length + 1);
});

test('an empty tree, and one of sixty thousand frames, are laid out', () => {
  const none = layOut(tree([]));
  assert.equal(none.rows, 1);
  assert.equal(frameAt(none, 0, 0), -1);
  const rows = [];
  for (let i = 0; i < 6000; i++) for (let depth = 0; depth < 10; depth++) rows.push([depth, `f${i}-${depth}`, 'k', 1]);
  const begin = cpuTime();
  const layout = layOut(tree(rows));
  assert.equal(layout.width[0], 6000);
  assert.ok(cpuTime() - begin < 1000);
});
