// @ts-check
// Durations, counts and shares for people, by the rules of exhume/host/quantities.py. tests/host/quantities.json holds both to them.

/** Unit in ns, its name, and the value from which the next unit is used. @type {[number, string, number][]} */
const SINGLE = [[1, 'ns', 1000], [1e3, 'µs', 1000], [1e6, 'ms', 1000], [1e9, 's', 60]];
/** @type {[number, string, number, string, number][]} */
const PAIRS = [[60e9, 'min', 1e9, 's', 60], [3600e9, 'h', 60e9, 'min', 24], [86400e9, 'd', 3600e9, 'h', 10]];

/** @param {number} value @param {number} unit */
const nearest = (value, unit) => Math.floor((2 * value + unit) / (2 * unit));

/** `1.4 ms`, `220 ms`, `12 s`, `2 min 30 s`, `3 h 5 min`, `4 d 2 h`. @param {number} us */
export function duration(us) {
  const ns = nearest(Math.abs(us) * 1000, 1);
  return ns === 0 ? '0 s' : `${us < 0 ? '-' : ''}${spelled(ns)}`;
}

/** @param {number} ns */
function spelled(ns) {
  for (const [unit, name, limit] of SINGLE) {
    const tenths = nearest(10 * ns, unit), value = nearest(ns, unit);
    if (tenths < 100) return `${tenths / 10} ${name}`;
    if (value < limit) return `${value} ${name}`;
  }
  for (const [unit, name, part, partName, limit] of PAIRS) {
    const parts = nearest(ns, part), value = Math.floor(parts / (unit / part)), rest = parts % (unit / part);
    if (value < limit) return `${value} ${name}${rest ? ` ${rest} ${partName}` : ''}`;
  }
  return `${nearest(ns, 86400e9)} d`;
}

/** `68,440`, `6.2`, `0.031`. @param {number} value */
export function count(value) {
  if (Number.isInteger(value) || Math.abs(value) >= 99.95) return Math.round(value).toLocaleString('en');
  if (Math.abs(value) >= 1) return value.toFixed(1);
  return value.toFixed(Math.min(12, 1 - Math.floor(Math.log10(Math.abs(value))))).replace(/0+$/, '');
}

/** `1 line`, `68,440 lines`. @param {number} number @param {string} noun */
export function counted(number, noun) {
  return `${count(number)} ${number === 1 ? noun : `${noun}s`}`;
}

/** `0.12 ms`: in a unit that the lane has. @param {number} value @param {string} unit */
export function measured(value, unit) {
  return unit ? `${count(value)} ${unit}` : count(value);
}

/** @param {number} share 0 to 1 */
export function percent(share, digits = 0) {
  return `${(share * 100).toFixed(digits)}%`;
}
