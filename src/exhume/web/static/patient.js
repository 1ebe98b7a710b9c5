// @ts-check
// Asks the server for a picture of a window: at once for a reader, patiently where the window only follows a live recording.
// A request that takes longer than the recording takes to grow would otherwise be ended by the next one, for ever.

/**
 * @param {() => Promise<void>} work asks and shows; ends the request before it
 * @param {() => number} now ms
 */
export function patient(work, now = () => performance.now()) {
  let timer = 0, latest = 0, running = false, onceMore = false, took = 0, ended = 0;

  async function run() {
    clearTimeout(timer);
    timer = 0;
    onceMore = false;
    running = true;
    const mine = ++latest, begun = now();
    try {
      await work();
    } finally {
      if (mine === latest) {
        running = false;
        ended = now();
        took = ended - begun;
        if (onceMore) follow(0);
      }
    }
  }

  /** When what runs is there, and the server had as long for others as that took. @param {number} pause ms at least */
  function follow(pause) {
    onceMore = running;
    // What waits already will ask for what is wanted by then.
    if (!running && !timer) timer = setTimeout(run, Math.max(pause, ended + took - now()));
  }

  return {
    run,
    follow,
    /** After a pause: a pan changes the window many times a second. @param {number} pause ms */
    ask: (pause) => {
      clearTimeout(timer);
      timer = setTimeout(run, pause);
    },
  };
}
