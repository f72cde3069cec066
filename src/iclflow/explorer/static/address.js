// The state of the page in its address: compact JSON as base64url behind the #.
import { app, momentTime } from "./app.js";

function encode(value) {
  const bytes = new TextEncoder().encode(JSON.stringify(value));
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

function decode(text) {
  const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return JSON.parse(new TextDecoder().decode(Uint8Array.from(binary, (sign) => sign.charCodeAt(0))));
}

/** Everything that an address has to bring back. Names are short: addresses are copied into messages. */
function state() {
  const held = { v: 1 };
  if (app.preset) held.p = app.preset;
  if (app.config) held.c = app.config;
  if (app.source) held.o = app.source;
  if (app.pinned) held.a = app.pinnedSource ? { o: app.pinnedSource } : { c: app.pinned.config };
  const time = app.wantedTime ?? (app.following ? null : momentTime());
  if (time !== null) held.t = time;
  if (app.logTime) held.x = 1;
  if (app.logLoss) held.y = 1;
  if (!app.wholeRun) held.m = 1;
  if (app.sweep) held.s = app.sweep;
  return held;
}

let timer = null;
let written = "";

/** Writes the address soon; browsers slow a page down that does it at every move of a slider. */
export function save() {
  timer ??= setTimeout(saveNow, 300);
}

export function saveNow() {
  clearTimeout(timer);
  timer = null;
  if (!app.config && !app.source) return;
  written = `#${encode(state())}`;
  if (location.hash !== written) history.replaceState(null, "", written);
  // A reload finds the runs of this tab again, as long as the address is the one they belong to.
  const tab = { address: written, current: app.current?.id ?? null, pinned: app.pinned?.id ?? null };
  sessionStorage.setItem("tab", JSON.stringify(tab));
}

/** The state in the address, or null where there is none; a damaged one is null too, and said to be. */
export function load(complain) {
  const text = location.hash.slice(1);
  if (!text) return null;
  try {
    const held = decode(text);
    if (held && typeof held === "object" && held.v === 1) return held;
  } catch {
    // Falls through to the complaint below.
  }
  complain("The address holds no state that this page can read; it starts with a preset instead.");
  return null;
}

/** The runs of this tab before a reload, if the address is still the same. */
export function reloaded() {
  try {
    const tab = JSON.parse(sessionStorage.getItem("tab"));
    return tab && tab.address === location.hash ? tab : null;
  } catch {
    return null;
  }
}

/** Whether the address was changed by somebody else than this page. */
export const foreign = () => location.hash !== written;
