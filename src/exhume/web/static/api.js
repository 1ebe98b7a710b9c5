// @ts-check
// Everything the page asks of its server. A request has a key: a newer one with the same key ends the older, so that what
// arrives is always what was asked for last. Answers are kept for a while, unless a live recording may still change them.
import {span} from './state.js';

/**
 * @typedef {object} About
 * @property {string} name
 * @property {Record<string, unknown>} node
 * @property {string} kernel
 * @property {number[]} cores
 * @property {string} start_ns
 * @property {number} duration_us
 * @property {number} real_start_ms
 * @property {boolean} has_wall
 * @property {[number, number][]} [clock] moments, µs from the begin, and what the clock on the wall said then, ms: the first is
 *   the begin, more of them where that clock was set; in their order
 * @property {boolean} live
 * @property {number} hz
 * @property {number | null} samples null where they were not counted
 * @property {boolean} sampled
 * @property {unknown[]} boots
 * @property {string} version
 * @property {{from: number, to: number} | null} [initial] what the command line asked to see
 * @property {string[]} [notes] what was found damaged or incomplete
 * @property {number} [ready] how much of the outline is read, 0 to 1: until then long windows have holes
 * @property {number} [kept_us] before this nothing is kept any more
 */

/**
 * One that was found, but not judged by itself, has no cause.
 * @typedef {{start: number, end: number, health: string, cause: string | null, subject: string, summary: string,
 *   judged?: boolean}} Incident
 */
/**
 * @typedef {{columns: number, kernel: (number | null)[], busy: (number | null)[], zombies: (number | null)[],
 *   incidents: Incident[], incidents_ready: boolean, incidents_failed?: boolean, incidents_more?: number, ready?: number,
 *   to?: number}} Overview
 */
/**
 * Bytes are shares of 254; 255 is not known.
 * @typedef {{core: number, odd: number, system: string, softirq: string, user: string, steal: string}} CoreStrip
 */
/** @typedef {{key: string, title: string, unit: string, values: (number | null)[], least: number, most: number}} Line */
/** @typedef {{title: string, spans: [number, number, number, string][]}} Bars */
/** @typedef {{t: number, severity: 'info' | 'warning' | 'critical', kind: string, text: string}} Flag */
/**
 * @typedef {{t: number, unit: string, times: number}} Restart
 * @typedef {{t: number, device: string, reason: string}} Reset
 * @typedef {{from: number, to: number, columns: number, cores: CoreStrip[], lines: Line[], bars: Bars[], flags: Flag[],
 *   flags_left_out: number, restarts: Restart[], resets: Reset[], ready?: number, source?: string}} Lanes
 */
/**
 * @typedef {{start: number, seconds: number, rows: number, cells: string, most: number, unknown: string,
 *   seconds_per_column?: number, ready?: number}} Heat
 */
/**
 * @typedef {{total: number, base_total: number, names: string[], modules: string[], depth: number[], name: number[],
 *   module: number[], kind: string, value: number[], base: number[], left_out: number,
 *   baseline?: {from: number, to: number, how: string}}} Flame
 */
/** @typedef {{cores: number[] | null, comm: string, pid: string, tid: string, cgroup: string}} Filters whose samples */
/** @typedef {{key?: string}} Options */
/** @typedef {ReturnType<typeof createApi>} Api */

const KEPT = 64, NOT_YET_MS = 300;
// The newest seconds of a live recording are still being written.
const SETTLED_US = 5_000_000;

/** What the server refused, or could not; its sentence is for people. */
export class ApiError extends Error {
  /** @param {number} status @param {string} message */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/**
 * Whether a request was ended because a newer one took its place: nothing to tell anybody.
 * @param {unknown} error
 */
export function isAbort(error) {
  return error instanceof DOMException && error.name === 'AbortError';
}

/**
 * Bytes of a base64 text.
 * @param {string} text
 */
export function bytes(text) {
  const raw = atob(text);
  const found = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) found[i] = raw.charCodeAt(i);
  return found;
}

/**
 * @param {() => About} about the latest that is known
 * @param {typeof fetch} ask
 * @param {(sentence: string) => void} waiting told what an answer waits for, and '' when it waits no more
 */
export function createApi(about, ask = (...wanted) => fetch(...wanted), waiting = () => {}) {
  /** @type {Map<string, unknown>} */
  const kept = new Map();
  /** @type {Map<string, AbortController>} */
  const running = new Map();

  /** @param {number} time µs from the begin: nanoseconds on the recording's clock, as a decimal */
  const ns = (time) => String(BigInt(about().start_ns) + BigInt(Math.round(time)) * 1000n);

  /** @param {number} from @param {number} to @param {Partial<Filters>} [whose] */
  const window = (from, to, whose = {}) => {
    const query = new URLSearchParams({from: ns(Math.max(0, from)), to: ns(to)});
    if (whose.cores) query.set('cores', whose.cores.join(','));
    for (const name of /** @type {const} */ (['comm', 'pid', 'tid', 'cgroup'])) {
      const text = whose[name];
      if (text) query.set(name, text);
    }
    return query;
  };

  /**
   * An answer that needs what is still being imported is asked for again until it is there.
   * @param {string} address
   * @param {AbortSignal} signal
   */
  async function whenThere(address, signal) {
    for (let waited = false; ; waited = true) {
      const response = await ask(address, {signal, headers: {Accept: 'application/json'}});
      if (response.status !== 202) {
        if (waited) waiting('');
        return response;
      }
      waiting(String((await response.json()).not_yet));
      await new Promise((done) => setTimeout(done, NOT_YET_MS));
    }
  }

  /**
   * @template T
   * @param {string} path
   * @param {URLSearchParams | null} query
   * @param {string} key
   * @param {number} until what the answer is about ends here, µs
   * @returns {Promise<T>}
   */
  async function get(path, query, key, until) {
    const address = query === null ? path : `${path}?${query}`;
    running.get(key)?.abort();
    running.delete(key);
    const known = kept.get(address);
    if (known !== undefined) {
      kept.delete(address);
      kept.set(address, known);
      return /** @type {T} */ (known);
    }
    const answer = await fetched(address, key, async (response) => /** @type {T} */ (await response.json()));
    const whole = (/** @type {{ready?: number}} */ (answer).ready ?? 1) >= 1;
    if (whole && (!about().live || until < about().duration_us - SETTLED_US)) {
      kept.set(address, answer);
      for (const oldest of kept.keys()) {
        if (kept.size <= KEPT) break;
        kept.delete(oldest);
      }
    }
    return answer;
  }

  /**
   * @template T
   * @param {string} address
   * @param {string} key
   * @param {(response: Response) => Promise<T>} read
   * @returns {Promise<T>}
   */
  async function fetched(address, key, read) {
    const control = new AbortController();
    running.set(key, control);
    try {
      const response = await whenThere(address, control.signal);
      if (!response.ok) throw new ApiError(response.status, await sentence(response));
      return await read(response);
    } catch (error) {
      if (isAbort(error) || error instanceof ApiError) throw error;
      throw new ApiError(0, 'The server does not answer: is exhume view still running?');
    } finally {
      if (running.get(key) === control) running.delete(key);
    }
  }

  return {
    /** Never kept: a recording that does not grow may do so again. @returns {Promise<About>} */
    about: () => fetched('api/about', 'about', (response) => response.json()),

    /**
     * What the recording is, and with it the heat map of all of it where the server has that: it is not asked for again.
     * @returns {Promise<{about: About, heat: Heat | null}>}
     */
    first: () => get('api/first', null, 'first', Infinity),

    /** Keeps the heat map that came first, as if it had been asked for. @param {Heat} heat */
    keepFirst: (heat) => void kept.set(`api/heat?${window(0, about().duration_us)}`, heat),

    /**
     * The whole recording, its incidents by time. Not kept until these are known.
     * @param {number} columns
     * @param {Options} [options]
     * @returns {Promise<Overview>}
     */
    overview: async (columns, options = {}) => {
      const query = new URLSearchParams({columns: String(columns)});
      const found = /** @type {Overview} */ (await get('api/overview', query, options.key ?? 'overview', about().duration_us));
      found.incidents.sort((one, other) => one.start - other.start);
      if (!found.incidents_ready || found.incidents_failed) kept.delete(`api/overview?${query}`);
      return found;
    },

    /**
     * @param {number} from
     * @param {number} to
     * @param {number} columns
     * @param {Options & {odd?: boolean}} [options]
     * @returns {Promise<Lanes>}
     */
    lanes: (from, to, columns, options = {}) => {
      const query = window(from, to);
      query.set('columns', String(columns));
      query.set('cores', options.odd ? 'odd' : 'all');
      return get('api/lanes', query, options.key ?? 'lanes', to);
    },

    /**
     * @param {number} from
     * @param {number} to
     * @param {Partial<Filters> & {symbol?: string}} [whose]
     * @param {Options} [options]
     * @returns {Promise<Heat>}
     */
    heat: (from, to, whose = {}, options = {}) => {
      const query = window(from, to, whose);
      if (whose.symbol) query.set('symbol', whose.symbol);
      return get('api/heat', query, options.key ?? 'heat', to);
    },

    /**
     * `base` as in the state: 'off', 'auto' or 'FROM-TO' in µs.
     * @param {number} from
     * @param {number} to
     * @param {Partial<Filters> & {by?: string, reverse?: boolean, idle?: boolean, base?: string}} [wanted]
     * @param {Options} [options]
     * @returns {Promise<Flame>}
     */
    flame: (from, to, wanted = {}, options = {}) => {
      const query = window(from, to, wanted);
      if (wanted.by) query.set('by', wanted.by);
      if (wanted.reverse) query.set('reverse', '1');
      query.set('idle', wanted.idle ? '1' : '0');
      const base = span(wanted.base ?? 'off');
      if (base) {
        query.set('base_from', ns(base[0]));
        query.set('base_to', ns(base[1]));
      } else if (wanted.base === 'auto') query.set('base', 'auto');
      return get('api/flame', query, options.key ?? 'flame', to);
    },

    /**
     * exhume.report/2, with the spans and the displayed evidence of each finding.
     * @param {number} from
     * @param {number} to
     * @param {Options} [options]
     * @returns {Promise<any>}
     */
    verdict: (from, to, options = {}) => get('api/verdict', window(from, to), options.key ?? 'verdict', to),

    /**
     * The address of a download.
     * @param {string} format
     * @param {number} from
     * @param {number} to
     * @param {Partial<Filters> & {idle?: boolean}} [wanted]
     */
    exportUrl: (format, from, to, wanted = {}) => {
      const query = window(from, to, wanted);
      query.set('format', format);
      query.set('idle', wanted.idle ? '1' : '0');
      return `api/export?${query}`;
    },

    /**
     * What such an address gives, and what it is to be called.
     * @param {string} address
     * @returns {Promise<{blob: Blob, name: string}>}
     */
    download: (address) => fetched(address, address, async (response) => {
      const name = /filename="([^"/]+)"/.exec(response.headers.get('content-disposition') ?? '')?.[1];
      return {blob: await response.blob(), name: name ?? 'exhume-export'};
    }),

    /** Asks for everything anew from now on. */
    forget: () => kept.clear(),

    /** Ends what runs under a key. @param {string} key */
    abort: (key) => running.get(key)?.abort(),
  };
}

/** What the server says went wrong. @param {Response} response */
async function sentence(response) {
  try {
    const told = await response.json();
    if (typeof told?.error === 'string') return told.error;
  } catch {
    // Not JSON: the status has to do.
  }
  if (response.status === 401) return 'The token is missing or wrong: open the address that exhume view printed.';
  return `The server answered ${response.status}.`;
}
