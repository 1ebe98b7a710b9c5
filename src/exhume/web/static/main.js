// @ts-check
// Puts the page together: asks what the recording is, makes the one store, and gives each picture its place.
import {createApi} from './api.js';
import {applyTheme, followSystem} from './colours.js';
import {mountHeat} from './heat.js';
import {createStore} from './state.js';

// What is not on the way to the first picture is loaded after it, or while that takes long.
const TOLD_MS = 8000, UPPER_MS = 250, LOWER_MS = 300;

/** @param {string} id */
function place(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

/** @param {import('./state.js').Store} store */
function showStatus(store) {
  const line = place('status');
  let fading = 0;
  store.status.subscribe(({text, bad}) => {
    line.textContent = text;
    line.classList.toggle('bad', bad);
    clearTimeout(fading);
    if (text) fading = setTimeout(() => store.status.set({text: '', bad: false}), TOLD_MS);
  });
}

/**
 * Says what is waited for, and ends that when it came; what else was told stays.
 * @param {string} sentence
 * @param {import('./state.js').Store | null} store
 */
function waiting(sentence, store) {
  const told = store?.status.get();
  if (!store || !told || told.bad || told.text === sentence) return;
  if (sentence || told.text === waited) store.status.set({text: sentence, bad: false});
  waited = sentence;
}
let waited = '';

/** @param {number} time */
const after = (time) => new Promise((done) => setTimeout(done, time));

/** When what was drawn is on the screen. */
const drawn = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));

async function start() {
  // The cookie has the token by now: nobody should read it off the screen, or find it in the history.
  const address = new URL(location.href);
  if (address.searchParams.has('token')) {
    address.searchParams.delete('token');
    history.replaceState(null, '', address);
  }
  /** @type {import('./api.js').About | null} */
  let first = null;
  /** @type {import('./state.js').Store | null} */
  let store = null;
  const unknown = /** @type {import('./api.js').About} */ ({live: true, start_ns: '0', duration_us: 0});
  const api = createApi(() => store?.about() ?? first ?? unknown, undefined, (sentence) => waiting(sentence, store));
  /** @type {import('./api.js').Heat | null} */
  let heat = null;
  const waitedLong = setTimeout(() => void import('./upper.js'), UPPER_MS);
  try {
    ({about: first, heat} = await api.first());
    clearTimeout(waitedLong);
  } catch (error) {
    place('status').textContent = /** @type {Error} */ (error).message;
    place('status').classList.add('bad');
    return;
  }
  const made = (store = createStore(first));
  if (heat) api.keepFirst(heat);
  document.title = `${String(first.node?.hostname ?? first.name)} · exhume`;
  applyTheme(made.get().theme);
  followSystem();
  made.subscribe((state, before) => {
    if (state.theme !== before.theme) applyTheme(state.theme);
  });
  showStatus(made);
  const heatShown = mountHeat(place('heat'), made, api);
  if (heat) await Promise.race([heatShown.then(drawn), after(LOWER_MS)]);
  const {mountUpper} = await import('./upper.js');
  mountUpper(place, made, api);
  if (first.notes?.length) made.status.set({text: first.notes.join(' '), bad: false});
  await Promise.race([heatShown, after(LOWER_MS)]);
  const {mountLower} = await import('./lower.js');
  await mountLower(place, made, api);
}

void start();
