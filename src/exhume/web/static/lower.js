// @ts-check
// The lower half of the page: the flame graph, the verdict and what can be taken along. It is loaded, with the styles that only
// it has, when the upper half is there: what is seen first should not wait for it.
import {mountExport} from './export.js';
import {mountFlame} from './flame.js';
import {mountVerdict} from './verdict.js';

/** @param {string} address */
function styled(address) {
  return new Promise((done) => {
    const link = document.createElement('link');
    link.rel = 'stylesheet';
    link.href = address;
    link.onload = link.onerror = done;
    document.head.append(link);
  });
}

/**
 * @param {(id: string) => HTMLElement} place
 * @param {import('./state.js').Store} store
 * @param {import('./api.js').Api} api
 */
export async function mountLower(place, store, api) {
  await Promise.all([styled('flame.css'), styled('verdict.css')]);
  mountFlame(place('flame'), store, api);
  mountVerdict(place('verdict'), store, api);
  mountExport(place('export'), store, api);
}
