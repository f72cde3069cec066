// Keyboard shortcuts. They are off in text fields, and can be switched off.
import { byId, make } from "./app.js";
import { lasting } from "./storage.js";

const SHORTCUTS = [
  ["r", "run", () => byId("run").click()],
  ["p", "pause or continue", () => (byId("continue").disabled ? byId("pause") : byId("continue")).click()],
  ["c", "cancel", () => byId("cancel").click()],
  ["k", "pin this run, to compare it with the next one", () => byId("pin").click()],
  ["Space", "play or stop", () => byId("play").click()],
  ["l", "linear or log time", () => byId("log-time").click()],
  ["?", "this list", () => byId("help").click()],
];

const MORE = [
  ["← →", "on the time slider: previous or next point; Home and End: first and last"],
  ["↑ ↓", "on an eigenvalue: larger or smaller; with Shift, or Page up and Page down, ten times as much"],
  ["Esc", "close a window"],
];

const writes = (target) =>
  target.closest("textarea, select, [contenteditable], input:not([type=range]):not([type=checkbox])");
const presses = (target) => target.closest("button, a, summary, input[type=checkbox]");

export function wireKeys() {
  const dialog = byId("keys");
  const letters = byId("letters");
  const rows = [...SHORTCUTS, ...MORE].flatMap(([key, words]) => {
    return [make("dt", {}, make("kbd", { text: key })), make("dd", { text: words })];
  });
  byId("key-list").append(...rows);
  letters.checked = lasting.read("letters") !== "off";
  letters.addEventListener("change", () => lasting.write("letters", letters.checked ? "on" : "off"));
  byId("help").addEventListener("click", () => dialog.showModal());
  for (const close of document.querySelectorAll("dialog .close")) {
    close.addEventListener("click", () => close.closest("dialog").close());
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || event.repeat) return;
    if (!letters.checked || writes(event.target) || document.querySelector("dialog[open]")) return;
    const key = event.key === " " ? "Space" : event.key.toLowerCase();
    if (key === "Space" && presses(event.target)) return; // Space presses what has the focus
    const found = SHORTCUTS.find(([name]) => name === key || name.toLowerCase() === key);
    if (!found) return;
    event.preventDefault();
    found[2]();
  });
}
