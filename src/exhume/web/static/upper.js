// @ts-check
// The upper half of the page, but for the heat map: what is above it, and what acts on all of it. It is loaded when that is on
// the screen, or while the server takes its time: the first picture should not wait for it.
import {mountHelp} from './help.js';
import {mountKeys} from './keys.js';
import {mountLanes} from './lanes.js';
import {mountOverview} from './overview.js';
import {mountToolbar} from './toolbar.js';
import {watch} from './watch.js';

/** @type {import('./state.js').State['theme'][]} */
const THEMES = ['auto', 'light', 'dark'];

/**
 * @param {(id: string) => HTMLElement} place
 * @param {import('./state.js').Store} store
 * @param {import('./api.js').Api} api
 */
export function mountUpper(place, store, api) {
  const nextTheme = () => store.set({theme: THEMES[(THEMES.indexOf(store.get().theme) + 1) % THEMES.length]});
  const help = mountHelp(/** @type {HTMLDialogElement} */ (place('help')));
  mountToolbar(place('toolbar'), store, {help: help.open, theme: nextTheme});
  mountOverview(place('overview'), store, api);
  mountLanes(place('lanes'), store, api);
  mountKeys(store, api, help, nextTheme);
  watch(api, store);
}
