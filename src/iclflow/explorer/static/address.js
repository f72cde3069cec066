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

/** Everything that an address restores. Names are short: addresses are copied into messages. */
function pageState() {
  const saved = { v: 1 };
  if (app.preset) saved.p = app.preset;
  if (app.config) saved.c = app.config;
  if (app.source) saved.o = app.source;
  if (app.pinned) saved.a = app.pinnedSource ? { o: app.pinnedSource } : { c: app.pinned.config };
  const time = app.wantedTime ?? (app.following ? null : momentTime());
  if (time !== null) saved.t = time;
  if (app.logTime) saved.x = 1;
  if (app.logLoss) saved.y = 1;
  if (!app.wholeRun) saved.m = 1;
  if (app.sweep) saved.s = app.sweep;
  return saved;
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
  written = `#${encode(pageState())}`;
  if (location.hash !== written) history.replaceState(null, "", written);
  // After a reload the runs of this tab are found again, if the address is still theirs.
  const tab = { address: written, current: app.current?.id ?? null, pinned: app.pinned?.id ?? null };
  ofTab.write("tab", JSON.stringify(tab));
}

const isTable = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/** The state in the address, or null where there is none or a damaged one, which is reported. */
export function load(onError) {
  const text = location.hash.slice(1);
  if (!text) return null;
  try {
    const saved = decode(text);
    if (isTable(saved) && saved.v === 1 && (saved.c === undefined || isTable(saved.c))) return saved;
  } catch {
    // Falls through to the error below.
  }
  onError("This page cannot read the state in the address; it starts with a preset instead.");
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

/** Whether the address was changed by something other than this page. */
export const isForeign = () => location.hash !== written;
