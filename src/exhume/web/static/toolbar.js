// @ts-check
// The bar at the top: whose node and what time is shown, whose samples count, what the heat map counts, light or dark.
import {atEnd, day, told, zoomed} from './axis.js';
import {plain} from './canvas.js';
import {windowed} from './gestures.js';
import {duration} from './quantities.js';

/** Families of functions that a heat map is coloured by: what starves a node is mostly one of these. @type {[string, string][]} */
export const FAMILIES = [
  ['', 'all busy samples'],
  ['mem_cgroup|memcg|lruvec|lru_gen', 'memory cgroups'],
  ['net_rx_action|napi_|__netif_receive|tcp_|udp_|ip_rcv|net_tx', 'network'],
  ['__do_softirq|handle_softirqs|do_softirq', 'softirq'],
  ['shrink_|try_to_free|kswapd|do_shrink_slab|reclaim', 'reclaim'],
  ['_spin_lock|_slowpath|mutex_lock|rwsem|osq_lock', 'waiting for locks'],
  ['page_fault|handle_mm_fault', 'page faults'],
  ['printk|console_|serial8250|vprintk', 'printk and consoles'],
  ['writeback|blk_|submit_bio|ext4_|xfs_|btrfs_', 'writing to disk'],
];
const OWN = '\u0000own';

/**
 * @param {HTMLElement} element
 * @param {import('./state.js').Store} store
 * @param {{help: () => void, theme: () => void}} does
 */
export function mountToolbar(element, store, does) {
  const about = store.about();
  const name = element_('h1', {textContent: plain(String(about.node?.hostname ?? about.name)), title: plain(about.name)});
  const boot = element_('span', {className: 'boot', textContent: bootOf(about)});
  const live = element_('span', {className: 'live', textContent: 'live', hidden: true});
  const shown = element_('span', {className: 'shown'});

  const zoom = (/** @type {number} */ factor) => {
    const {from, to} = store.get();
    store.set(windowed(store, zoomed({from, to}, (from + to) / 2, factor, store.about().duration_us)), {push: true});
  };
  const buttons = [
    button('−', 'Zoom out', () => zoom(2)),
    button('+', 'Zoom in', () => zoom(0.5)),
    button('All', 'Show all of the recording', () => store.set({from: 0, to: store.about().duration_us, follow: 'whole'}, {push: true})),
  ];
  const follow = button('Follow', 'Keep the end of the live recording in sight', () => {
    const {from, to} = store.get();
    store.set({...atEnd({from, to}, store.about().duration_us), follow: 'end'}, {push: true});
  });
  const clear = button('End selection', 'End the selection', () => store.set({selFrom: null, selTo: null}, {push: true}));

  const cores = field('Cores', '39 or 0-3,8', (text) => ({cores: coresOf(text)}));
  const comm = field('Process', 'name or pattern', (comm) => ({comm}));
  const pid = field('PID', '4242', (pid) => ({pid: numbers(pid)}));
  const tid = field('Thread', 'TID', (tid) => ({tid: numbers(tid)}));
  const cgroup = field('Cgroup', 'path or pattern', (cgroup) => ({cgroup}));

  const colour = element_('select', {});
  for (const [pattern, title] of FAMILIES) colour.append(new Option(title, pattern));
  colour.append(new Option('functions like…', OWN));
  const own = element_('input', {type: 'search', placeholder: 'function or pattern', hidden: true});
  own.setAttribute('aria-label', 'Functions that the heat map counts');
  colour.addEventListener('change', () => {
    own.hidden = colour.value !== OWN;
    if (colour.value === OWN) own.focus();
    else store.set({colour: colour.value}, {push: true});
  });
  own.addEventListener('change', () => store.set({colour: own.value.trim()}, {push: true}));

  const theme = button('◐', 'Light, dark, or as the system is', does.theme);
  const help = button('?', 'Help', does.help);
  const title = element_('div', {className: 'row'});
  title.append(name, boot, live, shown, ...buttons, follow, clear, element_('span', {className: 'space'}), theme, help);
  const filters = element_('div', {className: 'row'});
  filters.append(...[cores, comm, pid, tid, cgroup].map((one) => one.label), labelled('Heat map of', colour), own);
  element.append(title, filters);

  const update = () => {
    const state = store.get(), clock = store.about();
    const selected = state.selFrom !== null && state.selTo !== null;
    const [from, to] = selected ? [state.selFrom ?? 0, state.selTo ?? 0] : [state.from, state.to];
    const step = to - from < 60e6 ? 1000 : 1e6;
    const span = `${day(from, clock)} ${told(from, clock, step)} to ${told(to, clock, step)}, ${duration(to - from)}`;
    const text = selected ? `selected ${span}` : span;
    if (shown.textContent !== text) shown.textContent = text;
    live.hidden = follow.hidden = !clock.live;
    // What changes every two seconds is not read out.
    shown.setAttribute('aria-live', clock.live ? 'off' : 'polite');
    follow.setAttribute('aria-pressed', String(state.follow !== ''));
    clear.hidden = !selected;
    cores.show(state.cores?.join(',') ?? '');
    comm.show(state.comm);
    pid.show(state.pid);
    tid.show(state.tid);
    cgroup.show(state.cgroup);
    const known = FAMILIES.some(([pattern]) => pattern === state.colour);
    if (document.activeElement !== colour && document.activeElement !== own) {
      colour.value = known ? state.colour : OWN;
      own.hidden = known;
      own.value = known ? '' : state.colour;
    }
    theme.setAttribute('aria-label', `Light or dark: ${state.theme === 'auto' ? 'as the system is' : state.theme}`);
    theme.title = theme.getAttribute('aria-label') ?? '';
  };
  store.subscribe(update);
  update();

  /** @param {string} label @param {string} hint @param {(text: string) => Partial<import('./state.js').State>} patch */
  function field(label, hint, patch) {
    const input = element_('input', {type: 'search', placeholder: hint, spellcheck: false, autocomplete: 'off'});
    input.addEventListener('change', () => store.set(patch(input.value.trim()), {push: true}));
    return {
      label: labelled(label, input),
      /** @param {string} text */
      show: (text) => {
        if (document.activeElement !== input && input.value !== text) input.value = text;
      },
    };
  }
}

/** Which boot of several is shown, and how to see another. @param {import('./api.js').About} about */
export function bootOf({boots, node}) {
  const at = boots.indexOf(node?.boot_id);
  return boots.length > 1 && at >= 0 ? `boot ${at + 1} of ${boots.length} (--boot)` : '';
}

/** `4242` or `4242,4250`; anything else is no filter. @param {string} text */
function numbers(text) {
  return /^\d{1,10}(,\d{1,10})*$/.test(text) ? text : '';
}

/**
 * `39`, `0-3,8` as numbers in rising order; -1 where the core is not known; null for none.
 * @param {string} text
 * @returns {number[] | null}
 */
export function coresOf(text) {
  const found = new Set();
  for (const part of text.split(/[\s,]+/)) {
    if (part === '-1') found.add(-1);
    const ends = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(part);
    if (!ends) continue;
    for (let core = Number(ends[1]); core <= Math.min(Number(ends[2] ?? ends[1]), Number(ends[1]) + 4096); core++) found.add(core);
  }
  return found.size ? [...found].sort((a, b) => a - b) : null;
}

/**
 * @template {'h1' | 'span' | 'div' | 'select' | 'input' | 'button' | 'label'} Tag
 * @param {Tag} tag
 * @param {Record<string, string | boolean>} properties
 * @returns {HTMLElementTagNameMap[Tag]}
 */
function element_(tag, properties) {
  return Object.assign(document.createElement(tag), properties);
}

/** @param {string} text @param {string} title @param {() => void} action */
function button(text, title, action) {
  const made = element_('button', {type: 'button', textContent: text, title});
  made.setAttribute('aria-label', title);
  made.addEventListener('click', action);
  return made;
}

/** @param {string} text @param {HTMLElement} control */
function labelled(text, control) {
  const made = element_('label', {});
  made.append(`${text} `, control);
  return made;
}
