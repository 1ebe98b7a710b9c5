// @ts-check
// Regular expressions that come with somebody's link: a browser cannot be interrupted while it matches one, so what could take
// for ever is refused before. The server has the same rule for those that it is sent.

// In how many ways an expression may match at one place of a name, and what * and + count for: two of them are enough.
const MOST_WAYS = 1000, ENDLESS = 12;
// What it takes at least, however short the name: what has no width can be repeated, too.
const MOST_STEPS = 1000;
const OPENED = /\((?:\?(?:[:=!]|<[=!]|<[^>]*>))?/y;
const REPEATED = /(?:[*+?]|\{(\d+)(,(\d*))?\})\??/y;

/**
 * Why an expression is refused, or nothing.
 * @param {string} pattern
 * @returns {string}
 */
export function refused(pattern) {
  if (/\\(?:[1-9]|k<)/.test(pattern.replace(/\\\\/g, ''))) return 'to refer back to a group can take for ever';
  const {ways, steps} = cost(pattern);
  if (ways === Infinity) return 'a repetition inside of a repetition can take for ever';
  return ways > MOST_WAYS || steps > MOST_STEPS ? 'it can match in so many ways that it can take for ever: use fewer of * + ? {} |' : '';
}

/** @typedef {{ways: number, steps: number}} Cost */

/**
 * In how many ways an expression can match: choices add up, what follows one another is multiplied. What is repeated without
 * an end and can itself match in several ways takes exponential time: (a+)+ and (a|aa)*.
 * @param {string} pattern
 * @returns {Cost}
 */
export function cost(pattern) {
  const plain = pattern.replace(/\\[^]/g, 'x').replace(/\[[^\]]*\]/g, 'x');
  /** Of each open group the ways of the choices before, those of the one that is read, and all steps. */
  const open = [{before: 0, now: 1, steps: 1}];
  for (let at = 0; at < plain.length; ) {
    const group = open[open.length - 1];
    /** @type {Cost} */
    let found = {ways: 1, steps: 1};
    if (plain[at] === '(') {
      open.push({before: 0, now: 1, steps: 1});
      at += matched(OPENED, plain, at)?.[0].length ?? 1;
      continue;
    }
    if (plain[at] === '|') {
      Object.assign(group, {before: group.before + group.now, now: 1});
      at++;
      continue;
    }
    if (plain[at] === ')' && open.length > 1) {
      open.pop();
      found = {ways: group.before + group.now, steps: group.steps};
    }
    at++;
    const often = matched(REPEATED, plain, at);
    if (often) {
      at += often[0].length;
      found = repeated(found, often);
    }
    const around = open[open.length - 1];
    around.now *= found.ways;
    around.steps += found.steps;
  }
  return {ways: open[0].before + open[0].now, steps: open[0].steps};
}

/** @param {RegExp} sticky @param {string} text @param {number} at */
function matched(sticky, text, at) {
  sticky.lastIndex = at;
  return sticky.exec(text);
}

/** @param {Cost} found of what is repeated @param {RegExpExecArray} often @returns {Cost} */
function repeated({ways, steps}, [sign, least, comma, most]) {
  steps *= Math.max(1, Number(least ?? 1));
  if (/^[*+]/.test(sign) || (comma && !most)) return {ways: ways > 1 ? Infinity : ENDLESS, steps};
  const [low, high] = least === undefined ? [0, 1] : [Number(least), Number(most ?? least)];
  return {ways: (Math.max(0, high - low) + 1) * ways ** high, steps};
}
