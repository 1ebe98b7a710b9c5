// @ts-check
// The export menu: the selection for other tools, by the server; the flame graph as a picture, made here.
import { isAbort } from './api.js';
import { picture } from './flame.js';
import { element } from './flame_controls.js';
import { paint, ROW } from './flame_draw.js';
import { flameSvg } from './flame_svg.js';
import { moment } from './flame_words.js';
import { chosen } from './state.js';
import {duration} from './quantities.js';

/** @typedef {import('./state.js').Store} Store */
/** @typedef {import('./api.js').Api} Api */

/** @type {[string, string, string][]} */
const FORMATS = [
  ['pprof', 'pprof', 'go tool pprof, Pyroscope, Parca'],
  ['speedscope', 'speedscope', 'speedscope.app'],
  ['perfetto', 'Perfetto', 'ui.perfetto.dev: samples, counters and events'],
  ['firefox', 'Firefox Profiler', 'profiler.firefox.com'],
  ['folded', 'folded stacks', 'flamegraph.pl and others'],
  ['csv', 'samples as CSV', 'spreadsheets, DuckDB, pandas'],
];
// Canvases of browsers end at about 16,000 pixels a side.
const HIGHEST = 16_000;

/** @param {HTMLElement} host @param {Store} store @param {Api} api */
export function mountExport(host, store, api) {
  const menu = /** @type {HTMLDetailsElement} */ (element('details', 'export-menu'));
  const list = element('div', '');
  const summary = element('summary', '');
  summary.textContent = 'Export';
  menu.append(summary, list);
  host.replaceChildren(menu);

  /** Links are made when the menu is opened: they carry the time and the filters of that moment. */
  function fill() {
    const state = store.get();
    const { from, to } = chosen(state);
    const what = element('p', '');
    what.textContent = `${state.selFrom === null ? 'the window' : 'the selection'}: ${moment(store.about(), from)}, ${duration(to - from)}, with the filters`;
    list.replaceChildren(what, ...FORMATS.map(([format, name, use]) => {
      const link = /** @type {HTMLAnchorElement} */ (element('a', ''));
      link.href = api.exportUrl(format, from, to, state);
      link.download = '';
      described(link, name, use);
      link.addEventListener('click', (event) => {
        event.preventDefault();
        close(true);
        void bring(link.href, name);
      });
      return link;
    }), made('Flame graph as SVG', 'as it is zoomed now', saveSvg), made('Flame graph as PNG', 'as it is zoomed now', savePng));
  }

  /** Asked for by the page, and then saved: a download that fails would not say why. @param {string} address @param {string} name */
  async function bring(address, name) {
    const making = `The export for ${name} is being made…`;
    store.status.set({ text: making, bad: false });
    try {
      const file = await api.download(address);
      save(file.blob, file.name);
      if (store.status.get().text === making) store.status.set({ text: '', bad: false });
    } catch (error) {
      if (!isAbort(error)) store.status.set({ text: `Export: ${error instanceof Error ? error.message : String(error)}`, bad: true });
    }
  }

  /** @param {string} name @param {string} use @param {() => void} run */
  function made(name, use, run) {
    const button = /** @type {HTMLButtonElement} */ (element('button', ''));
    button.type = 'button';
    button.disabled = picture() === null;
    described(button, name, use);
    button.addEventListener('click', () => {
      run();
      close(true);
    });
    return button;
  }

  /** @param {boolean} back whether the focus goes to the menu's button */
  function close(back) {
    menu.open = false;
    if (back) summary.focus();
  }

  function title() {
    const { from, to } = chosen(store.get());
    return `${store.about().name}  ${moment(store.about(), from)} to ${moment(store.about(), to)}`;
  }

  function saveSvg() {
    const shown = picture();
    if (shown === null) return;
    save(new Blob([flameSvg(shown, title())], { type: 'image/svg+xml' }), 'flame.svg');
  }

  function savePng() {
    const shown = picture();
    if (shown === null) return;
    const canvas = drawn(shown);
    canvas.toBlob((blob) => {
      if (blob) save(blob, 'flame.png');
      else store.status.set({ text: 'The browser could not make a picture of this size.', bad: true });
    }, 'image/png');
  }

  menu.addEventListener('toggle', () => {
    if (menu.open) fill();
  });
  menu.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' || !menu.open) return;
    event.preventDefault();
    close(true);
  });
  menu.addEventListener('focusout', (event) => {
    if (event.relatedTarget instanceof Node && !menu.contains(event.relatedTarget)) menu.open = false;
  });
  document.addEventListener('pointerdown', (event) => {
    if (menu.open && event.target instanceof Node && !menu.contains(event.target)) menu.open = false;
  });
}

/** All rows of a flame graph on a canvas of its own, with twice the pixels. @param {import('./flame_draw.js').Picture} shown */
export function drawn(shown) {
  const height = shown.rows * ROW;
  const ratio = Math.min(2, HIGHEST / Math.max(height, shown.width));
  const canvas = document.createElement('canvas');
  canvas.width = Math.round(shown.width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext('2d', { alpha: false });
  if (context !== null) {
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    paint(context, { ...shown, height, ratio, scrolled: 0, focused: -1 });
  }
  return canvas;
}

/** @param {HTMLElement} host @param {string} name @param {string} use */
function described(host, name, use) {
  const hint = element('span', '');
  hint.textContent = use;
  host.append(name, hint);
}

/** @param {Blob} blob @param {string} name */
function save(blob, name) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
