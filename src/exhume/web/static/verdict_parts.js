// @ts-check
// The parts of a verdict as elements: the chain with its links, what was ruled out, what to do. Text only, never markup: the
// sentences carry names of units, cgroups and processes.
import { element } from './flame_controls.js';
import {percent} from './quantities.js';

/** @typedef {[number, number, (number | null)?]} Span begin and end, µs, and the core where there is one */
/** @typedef {{what: string, value: string | number, unit: string, source: string, text: string}} Evidence text: the value with its unit, as it is shown */
/**
 * @typedef {object} Finding
 * @property {string} id
 * @property {string} kind
 * @property {string} subject
 * @property {'info' | 'warning' | 'critical'} severity
 * @property {string} summary
 * @property {Record<string, unknown>} [facts] typed, by the kind
 * @property {Evidence[]} evidence
 * @property {Span[]} [spans]
 * @property {number} [start_us]
 * @property {number} [end_us]
 */
/**
 * exhume.report/2, with what the page shows and marks of each finding
 * @typedef {object} Report
 * @property {string} health
 * @property {{cause: string | null, subject: string | null, confidence: number, summary: string,
 *   chain: {finding: string, because: string, confidence?: number, disproof?: string}[],
 *   ruled_out: {kind: string, because: string}[], unseen?: {kind: string, because: string}[],
 *   remedies?: {id: string, target: string, command: string, effect: string, summary: string}[], next?: string[], against?: string[],
 *   advice?: {text: string, because: string, cost: string, against: boolean}[], switch_on?: string[]}} verdict
 * @property {Finding[]} findings
 * @property {{name: string, state: string, reason: string}[]} [sources]
 */

/** Where the evidence is: the spans of a finding, or the time it was seen in. @param {Finding} finding @returns {Span[]} */
export function spans(finding) {
  if (finding.spans?.length) return finding.spans;
  if (finding.start_us === undefined || finding.end_us === undefined) return [];
  return [[finding.start_us, finding.end_us, null]];
}

/** Whether there is anything of it on the lanes: a log tells of what was before the recording, too. @param {Span} span */
export function reached(span) {
  return span[1] >= 0;
}

/** The one to show first: the longest. @param {Span[]} all */
export function longest(all) {
  let best = 0;
  all.forEach((one, i) => {
    if (one[1] - one[0] > all[best][1] - all[best][0]) best = i;
  });
  return best;
}

/** @param {Report} report @param {(where: Span, all: Span[]) => void} go */
export function chain(report, go) {
  const byId = new Map(report.findings.map((finding) => [finding.id, finding]));
  const links = report.verdict.chain.filter((link) => byId.has(link.finding));
  const made = element('ol', 'verdict-chain');
  for (const link of links) {
    const finding = /** @type {Finding} */ (byId.get(link.finding));
    const item = element('li', finding.severity);
    if (link.because) {
      const sure = link.confidence !== undefined && link.confidence < 1 ? `, ${percent(link.confidence)} sure` : '';
      const because = text('p', 'verdict-because', `because ${link.because}${sure}`);
      if (link.disproof) because.title = `would be disproved by: ${link.disproof}`;
      item.append(because);
    }
    item.append(...linked(finding, go), numbers(finding));
    made.append(item);
  }
  const rest = report.findings.filter((finding) => !links.some((link) => link.finding === finding.id));
  const around = element('div', '');
  if (links.length) around.append(made);
  if (rest.length) around.append(others(rest, links.length === 0, go));
  return around;
}

/** What was seen beside the chain. @param {Finding[]} findings @param {boolean} open @param {(where: Span, all: Span[]) => void} go */
function others(findings, open, go) {
  const made = /** @type {HTMLDetailsElement} */ (element('details', 'verdict-others'));
  made.open = open;
  made.append(text('summary', '', `${findings.length} more ${findings.length === 1 ? 'finding' : 'findings'}`));
  const list = element('ul', '');
  for (const finding of findings) {
    const item = element('li', finding.severity);
    item.append(...linked(finding, go), numbers(finding));
    list.append(item);
  }
  made.append(list);
  return made;
}

/** A finding as a link to its evidence; where there is more than one span, with steps between them. @param {Finding} finding @param {(where: Span, all: Span[]) => void} go */
function linked(finding, go) {
  const found = spans(finding), all = found.filter(reached);
  if (all.length === 0) {
    const plain = text('span', 'verdict-finding', finding.summary);
    return found.length ? [plain, text('span', 'verdict-place', ' (before the recording began)')] : [plain];
  }
  let at = longest(all);
  const link = text('button', 'verdict-link', finding.summary);
  link.setAttribute('type', 'button');
  link.title = 'show it on the lanes';
  link.addEventListener('click', () => go(all[at], all));
  if (all.length === 1) return [link];
  const place = element('span', 'verdict-place');
  const steps = element('span', 'verdict-steps');
  const move = (/** @type {number} */ by) => {
    at = (at + by + all.length) % all.length;
    place.textContent = `${at + 1} of ${all.length}`;
  };
  for (const [sign, by, label] of /** @type {[string, number, string][]} */ ([['‹', -1, 'the time before'], ['›', 1, 'the next time']])) {
    const button = text('button', 'verdict-step', sign);
    button.setAttribute('type', 'button');
    button.setAttribute('aria-label', label);
    button.addEventListener('click', () => {
      move(by);
      go(all[at], all);
    });
    steps.append(button);
  }
  steps.insertBefore(place, steps.lastChild);
  move(0);
  return [link, steps];
}

/** @param {Finding} finding */
function numbers(finding) {
  const made = element('details', 'verdict-evidence');
  if (!finding.evidence.length) return made;
  made.append(text('summary', '', 'evidence'));
  const table = element('table', '');
  for (const one of finding.evidence) {
    const row = element('tr', '');
    row.append(text('th', '', one.what), text('td', '', one.text), text('td', 'verdict-source', one.source));
    row.firstElementChild?.setAttribute('scope', 'row');
    table.append(row);
  }
  made.append(table);
  return made;
}

/** What is said after the chain. @param {Report} report */
export function lists(report) {
  const { verdict } = report;
  const remedies = verdict.remedies ?? [];
  const summaries = (/** @type {boolean} */ fix) => remedies.filter((one) => (one.id === 'fix') === fix).map((one) => one.summary);
  const steps = [...summaries(true), ...(verdict.next ?? []), ...summaries(false)];
  const advice = (verdict.advice ?? []).map((one) => {
    const cost = one.cost && one.cost !== 'nothing' ? ` (costs ${one.cost})` : '';
    return `${one.against ? 'Not: ' : ''}${one.text}${one.because ? `: ${one.because}` : ''}${cost}`;
  });
  const off = (report.sources ?? []).filter((one) => one.state === 'off').map((one) => `${one.name}: ${one.reason || 'off'}`);
  const named = (/** @type {{kind: string, because: string}[]} */ all) => all.map((one) => `${one.kind}: ${one.because}`);
  return [
    list('Next', steps, true),
    list('Advice', advice, true),
    list('Speaks against it', verdict.against ?? [], true),
    list('Ruled out', named(verdict.ruled_out), false),
    list('Could not be seen', [...named(verdict.unseen ?? []), ...(verdict.switch_on ?? [])], false),
    list('Sources that were off', off, false),
  ].filter((one) => one !== null);
}

/** @param {string} title @param {string[]} entries @param {boolean} open */
function list(title, entries, open) {
  if (entries.length === 0) return null;
  const made = /** @type {HTMLDetailsElement} */ (element('details', 'verdict-list'));
  made.open = open;
  made.append(text('summary', '', `${title} (${entries.length})`));
  const items = element('ul', '');
  for (const entry of entries) items.append(text('li', '', entry));
  made.append(items);
  return made;
}

/** @param {string} tag @param {string} name @param {string} words */
function text(tag, name, words) {
  const made = element(tag, name);
  made.textContent = words;
  return made;
}
