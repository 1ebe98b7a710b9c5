// @ts-check
// Regular expressions that come with somebody's link: a browser cannot be interrupted while it matches one, so what could take
// for ever is refused before. The server has the same rule for those that it is sent.

// In how many ways an expression may match at one place of a name, and what * and + count for: two of them are enough.
const MOST_WAYS = 1000, ENDLESS = 12;
const OPENED = /\((?:\?(?:[:=!]|<[=!]|<[^>]*>))?/y;
const REPEATED = /(?:[*+?]|\{(\d+)(,(\d*))?\})\??/y;

/**
 * Why an expression is refused, or nothing.
 * @param {string} pattern
 * @returns {string}
 */
export function refused(pattern) {
  if (/\\(?:[1-9]|k<)/.test(pattern.replace(/\\\\/g, ''))) return 'to refer back to a group can take for ever';
  const found = ways(pattern);
  if (found === Infinity) return 'a repetition inside of a repetition can take for ever';
  return found > MOST_WAYS ? 'it can match in so many ways that it can take for ever: use fewer of * + ? {} |' : '';
}

/**
 * In how many ways an expression can match: choices add up, what follows one another is multiplied. What is repeated without
 * an end and can itself match in several ways takes exponential time: (a+)+ and (a|aa)*.
 * @param {string} pattern
 * @returns {number}
 */
export function ways(pattern) {
  const plain = pattern.replace(/\\[^]/g, 'x').replace(/\[[^\]]*\]/g, 'x');
  /** Of each open group the ways of the choices before, and of the one that is read. @type {{before: number, now: number}[]} */
  const open = [{before: 0, now: 1}];
  for (let at = 0; at < plain.length; ) {
    const group = open[open.length - 1];
    let found = 1;
    if (plain[at] === '(') {
      open.push({before: 0, now: 1});
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
      found = group.before + group.now;
    }
    at++;
    const often = matched(REPEATED, plain, at);
    if (often) {
      at += often[0].length;
      found = repeated(found, often);
    }
    open[open.length - 1].now *= found;
  }
  return open[0].before + open[0].now;
}

/** @param {RegExp} sticky @param {string} text @param {number} at */
function matched(sticky, text, at) {
  sticky.lastIndex = at;
  return sticky.exec(text);
}

/** @param {number} found ways of what is repeated @param {RegExpExecArray} often */
function repeated(found, [sign, least, comma, most]) {
  if (/^[*+]/.test(sign) || (comma && !most)) return found > 1 ? Infinity : ENDLESS;
  const [low, high] = least === undefined ? [0, 1] : [Number(least), Number(most ?? least)];
  return (Math.max(0, high - low) + 1) * found ** high;
}
