// As much of a page as the panels need that are tested without a browser: elements that hold what they were given.
import {signal} from '../../../src/exhume/web/static/state.js';

export class Fake {
  constructor(tag) {
    Object.assign(this, {tag, children: [], textContent: '', className: '', attributes: new Map(), listeners: new Map()});
    this.classList = {add: () => {}, remove: () => {}, toggle: () => {}};
  }

  get lastChild() { return this.children.at(-1); }
  get firstElementChild() { return this.children[0]; }
  append(...more) { this.children.push(...more); }
  replaceChildren(...all) { this.children = all; }
  insertBefore(made, next) { this.children.splice(this.children.indexOf(next), 0, made); }
  setAttribute(name, value) { this.attributes.set(name, value); }
  hasAttribute(name) { return this.attributes.has(name); }
  removeAttribute(name) { this.attributes.delete(name); }
  addEventListener(name, listener) { this.listeners.set(name, listener); }
  click() { this.listeners.get('click')(); }

  /** All elements of a class, in the order of the page. */
  named(name) {
    return this.children.flatMap((one) => (one instanceof Fake ? [...(one.className.split(' ').includes(name) ? [one] : []), ...one.named(name)] : []));
  }
}

/** A page without anything on it. */
export function fakePage() {
  globalThis.document = {createElement: (tag) => new Fake(tag)};
  globalThis.dispatchEvent = () => true;
}

/** A store without an address. */
export function fakeStore(state, about) {
  const listeners = [];
  return {
    get: () => state,
    set: (patch) => {
      const before = state;
      state = {...state, ...patch};
      for (const listener of listeners) listener(state, before);
    },
    subscribe: (listener) => listeners.push(listener),
    about: () => about,
    grow: (next) => { about = next; },
    status: signal({text: '', bad: false}),
  };
}
