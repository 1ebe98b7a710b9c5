// @ts-check
// The lower half of the page: the flame graph, the verdict and what can be taken along. It is loaded when the upper half, which
// is seen first, has what it needs.
import {mountExport} from './export.js';
import {mountFlame} from './flame.js';
import {mountVerdict} from './verdict.js';

/**
 * @param {(id: string) => HTMLElement} place
 * @param {import('./state.js').Store} store
 * @param {import('./api.js').Api} api
 */
export function mountLower(place, store, api) {
  mountFlame(place('flame'), store, api);
  mountVerdict(place('verdict'), store, api);
  mountExport(place('export'), store, api);
}
