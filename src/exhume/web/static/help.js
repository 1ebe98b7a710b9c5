// @ts-check
// The help: what hand and keyboard do, and what the pictures mean. A dialog of the browser's own, which keeps the focus.
import {KEYS} from './keys.js';

/** @type {[string, string][]} */
const HANDS = [
  ['drag', 'select a stretch of time; in the heat map from cell to cell, to 20 ms'],
  ['Shift and drag', 'pan'],
  ['wheel', 'zoom around the pointer; sideways, or with Shift, pan'],
  ['double click', 'zoom to the selection, or in'],
  ['click on a core’s name', 'only that core; with Ctrl that one too'],
  ['overview', 'drag the frame to move it, its edges to stretch it; drag beside it to draw a new one'],
];
const MEANING = [
  'Strips of cores are sorted by how far each is from the middle one; tall ones show the shares of its time stacked ' +
    '(system, softirq, user, steal from below), thin ones mixed.',
  'In the heat map a column is a second, read upwards from its begin. A stripe across is something that happens in every ' +
    'second, a full column a second without rest.',
  'Flame graph, verdict and export follow the selection, or the window where nothing is selected. The address of the page ' +
    'holds all of it: send it, or keep it.',
];

/** @param {HTMLDialogElement} dialog @returns {{open: () => void, close: () => boolean}} */
export function mountHelp(dialog) {
  const title = document.createElement('h2'), close = document.createElement('button');
  title.textContent = 'Help';
  title.id = 'help-title';
  dialog.setAttribute('aria-labelledby', title.id);
  close.type = 'button';
  close.textContent = 'Close';
  close.addEventListener('click', () => dialog.close());
  dialog.append(title, table('Mouse', HANDS), table('Keyboard', KEYS), ...MEANING.map(paragraph), close);
  dialog.addEventListener('click', (event) => {
    if (event.target === dialog) dialog.close();
  });
  return {
    open: () => {
      if (!dialog.open) dialog.showModal();
    },
    close: () => {
      const was = dialog.open;
      dialog.close();
      return was;
    },
  };
}

/** @param {string} text */
function paragraph(text) {
  const made = document.createElement('p');
  made.textContent = text;
  return made;
}

/** @param {string} name @param {[string, string][]} rows */
function table(name, rows) {
  const made = document.createElement('table'), caption = made.createCaption();
  caption.textContent = name;
  for (const [what, does] of rows) {
    const row = made.insertRow(), head = document.createElement('th');
    head.scope = 'row';
    head.textContent = what;
    row.append(head);
    row.insertCell().textContent = does;
  }
  return made;
}
