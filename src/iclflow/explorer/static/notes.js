// Errors and short notes at the top of a page.
import { byId } from "./app.js";

const message = byId("message");
const note = byId("note");
let noteTimer = null;
const problems = new Map(); // errors by owner; the last one is shown

/** Shows the error of an owner, or removes it when the text is empty. */
export function showError(owner, text) {
  problems.delete(owner);
  if (text) problems.set(owner, text);
  const shown = [...problems.values()].pop() ?? "";
  if (message.textContent !== shown) message.textContent = shown;
  message.hidden = !shown;
}

/** Shows a short note that disappears by itself. */
export function showNote(text) {
  note.textContent = text;
  clearTimeout(noteTimer);
  noteTimer = setTimeout(() => {
    note.textContent = "";
  }, 3000 + 80 * text.length); // as long as reading it takes
}
