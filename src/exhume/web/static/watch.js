// @ts-check
// Looks again at a recording that grows. Whoever writes it may be started anew, so that one that has stopped growing is still
// looked at, less often.
import {followed} from './state.js';

const LOOK_MS = 2000, BACK_MS = 10_000;

/** @param {import('./api.js').Api} api @param {import('./state.js').Store} store */
export function watch(api, store) {
  const look = async () => {
    const before = store.about();
    let next = before;
    try {
      next = await api.about();
      if (store.status.get().bad && store.status.get().text.startsWith('The server')) store.status.set({text: '', bad: false});
    } catch (error) {
      // What does not grow stays as it is, with or without its server.
      if (before.live) store.status.set({text: /** @type {Error} */ (error).message, bad: true});
    }
    if (next.duration_us !== before.duration_us || next.live !== before.live) {
      // Answers that were final while nobody wrote are not any more.
      if (next.live && !before.live) api.forget();
      store.grow(next);
      store.set(followed(store.get(), store.about().duration_us));
    }
    setTimeout(look, next.live ? LOOK_MS : BACK_MS);
  };
  if (store.about().live) setTimeout(look, LOOK_MS);
}
