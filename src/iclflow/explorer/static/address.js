// The state of the page in its address: compact JSON as base64url behind the #.
import { app, momentTime } from "./app.js";
import { isReload, ofTab } from "./storage.js";

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

/** Writes the address soon, and not while time plays: browsers refuse more than about three a second. */
export function save() {
  if (!app.playing) timer ??= setTimeout(saveNow, 350);
}

export function saveNow() {
  clearTimeout(timer);
  timer = null;
  if (!app.config && !app.source) return;
  written = `#${encode(state())}`;
  if (location.hash !== written) history.replaceState(null, "", written);
  // A reload finds the runs of this tab again, as long as the address is the one they belong to.
  const tab = { address: written, current: app.current?.id ?? null, pinned: app.pinned?.id ?? null };
  ofTab.write("tab", JSON.stringify(tab));
}

const isTable = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/** The state in the address, or null where there is none; a damaged one is null too, and said to be. */
export function load(complain) {
  const text = location.hash.slice(1);
  if (!text) return null;
  try {
    const held = decode(text);
    if (isTable(held) && held.v === 1 && (held.c === undefined || isTable(held.c))) return held;
  } catch {
    // Falls through to the complaint below.
  }
  complain("The address holds no state that this page can read; it starts with a preset instead.");
  return null;
}

/** The runs of this tab before a reload, if the address is still the same. */
export function reloaded() {
  if (!isReload()) return null;
  try {
    const tab = JSON.parse(ofTab.read("tab"));
    return tab && tab.address === location.hash ? tab : null;
  } catch {
    return null;
  }
}

/** Whether the address was changed by somebody else than this page. */
export const foreign = () => location.hash !== written;
