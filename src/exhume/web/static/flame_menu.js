// @ts-check
// A menu at a place on the page, for a frame of the flame graph; by mouse and by keys.

/** @typedef {{label: string, hint?: string, run: () => void}} Item */

/**
 * Opens a menu; it closes by itself when something is chosen, on Escape, and when the focus goes elsewhere.
 * @param {{x: number, y: number}} at in the window
 * @param {string} label
 * @param {Item[]} items
 * @param {HTMLElement} back what has the focus afterwards
 */
export function openMenu(at, label, items, back) {
  /** @type {HTMLElement | null} */ (document.activeElement?.closest('.flame-menu') ? document.activeElement : null)?.blur();
  const menu = document.createElement('div');
  menu.className = 'flame-menu';
  menu.setAttribute('role', 'menu');
  menu.setAttribute('aria-label', label);
  // Taking it away moves the focus, which would take it away again.
  let open = true;
  const close = (/** @type {boolean} */ focusBack = true) => {
    if (!open) return;
    open = false;
    menu.remove();
    if (focusBack) back.focus({ preventScroll: true });
  };
  for (const item of items) menu.append(button(item, close));
  menu.addEventListener('keydown', (event) => onKey(event, menu, close));
  menu.addEventListener('focusout', (event) => {
    if (!(event.relatedTarget instanceof Node && menu.contains(event.relatedTarget))) close(false);
  });
  menu.addEventListener('contextmenu', (event) => event.preventDefault());
  document.body.append(menu);
  const size = menu.getBoundingClientRect();
  menu.style.left = `${Math.max(4, Math.min(at.x, innerWidth - size.width - 4))}px`;
  menu.style.top = `${Math.max(4, Math.min(at.y, innerHeight - size.height - 4))}px`;
  focusOn(menu, 0);
}

/** @param {Item} item @param {() => void} close */
function button(item, close) {
  const made = document.createElement('button');
  made.type = 'button';
  made.setAttribute('role', 'menuitem');
  made.tabIndex = -1;
  const label = document.createElement('span');
  label.textContent = item.label;
  made.append(label);
  if (item.hint) {
    const hint = document.createElement('kbd');
    hint.textContent = item.hint;
    made.append(hint);
  }
  made.addEventListener('click', () => {
    close();
    item.run();
  });
  return made;
}

/** @param {HTMLElement} menu @param {number} place */
function focusOn(menu, place) {
  const items = menu.querySelectorAll('button');
  items[(place + items.length) % items.length]?.focus({ preventScroll: true });
}

/** @param {KeyboardEvent} event @param {HTMLElement} menu @param {() => void} close */
function onKey(event, menu, close) {
  const items = [...menu.querySelectorAll('button')];
  const place = items.findIndex((item) => item === document.activeElement);
  if (event.key === 'ArrowDown') focusOn(menu, place + 1);
  else if (event.key === 'ArrowUp') focusOn(menu, place - 1);
  else if (event.key === 'Home') focusOn(menu, 0);
  else if (event.key === 'End') focusOn(menu, -1);
  else if (event.key === 'Escape' || event.key === 'Tab') close();
  else if (event.key === 'Enter' || event.key === ' ') items[place]?.click();
  else return;
  event.preventDefault();
  event.stopPropagation();
}

/** Text into the clipboard; also where the page is not on a secure address. @param {string} text */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement('textarea');
    area.value = text;
    area.className = 'flame-unseen';
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    return done;
  }
}
