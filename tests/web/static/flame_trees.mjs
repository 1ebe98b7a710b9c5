// Trees for the tests of the flame graph, as /api/flame sends them.

/** @param {[number, string, string, number, number?, string?][]} rows depth, name, kind, samples, samples of the base, module */
export function tree(rows) {
  const names = [...new Set(rows.map((row) => row[1]))];
  const modules = [...new Set(rows.map((row) => row[5] ?? ''))];
  const [atName, atModule] = [names, modules].map((all) => new Map(all.map((text, i) => [text, i])));
  const sum = (place) => rows.reduce((all, row) => all + (row[0] === 0 ? row[place] ?? 0 : 0), 0);
  return {
    total: sum(3), base_total: sum(4), names, modules, left_out: 0,
    depth: rows.map((row) => row[0]), name: rows.map((row) => atName.get(row[1])), kind: rows.map((row) => row[2]).join(''),
    module: rows.map((row) => atModule.get(row[5] ?? '')), value: rows.map((row) => row[3]), base: rows.map((row) => row[4] ?? 0),
  };
}

export const HOSTILE = ['<script>alert(1)</script>', '"><img src=x onerror=alert(1)>', '</title></svg><svg onload=alert(1)>', ']]>&lt;b&gt;',
  'a;b c', '\u001b]0;owned\u0007', '\u202egnp.exe', '__proto__', 'constructor', '${7*7}', '\ud800', "'; DROP TABLE", ''];

/** Every name and module is an attempt. */
export function hostile() {
  return tree(HOSTILE.map((name, i) => /** @type {any} */ ([i % 4 === 0 ? 0 : i % 4, name, 'gkupji'[i % 6], 5, 0, name])));
}

/** Milliseconds that this process has computed: a limit on them holds on a busy machine as well. */
export function cpuTime() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}
