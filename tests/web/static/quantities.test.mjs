// The page spells quantities as exhume/host/quantities.py does: tests/host/test_quantities.py holds Python to the same table.
import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import test from 'node:test';
import {count, counted, duration, measured, percent} from '../../../src/exhume/web/static/quantities.js';

const table = JSON.parse(readFileSync(new URL('../../host/quantities.json', import.meta.url), 'utf-8'));

test('durations are spelled as everywhere', () => {
  for (const [ns, text] of table.duration) assert.equal(duration(ns / 1000), text);
});

test('counts are spelled as everywhere', () => {
  for (const [number, text] of table.count) assert.equal(count(number), text);
  for (const [number, noun, text] of table.counted) assert.equal(counted(number, noun), text);
  assert.deepEqual([measured(0.1234, 'ms'), measured(68440, '')], ['0.12 ms', '68,440']);
});

test('shares are spelled as everywhere', () => {
  for (const [share, digits, text] of table.percent) assert.equal(percent(share, digits), text);
});
