// Starting, stopping, pinning and following runs.
import { app, emit } from "./app.js";
import * as api from "./api.js";
import { LIVE, apply, isOver, newRun } from "./runs.js";
import { saveNow } from "./address.js";
import { dropMoments } from "./moments.js";

const gone = new Set(); // runs that were forgotten; late events of theirs are dropped
let order = 0; // rises with every wish for a run: only the last one counts
let closing = null;

export function record(id) {
  if (!app.runs.has(id)) app.runs.set(id, newRun(id));
  return app.runs.get(id);
}

/** Takes one event of the stream. */
export function take(event) {
  if (event.type === "forgotten") {
    gone.add(event.run);
    app.runs.delete(event.run);
    return;
  }
  if (gone.has(event.run)) return;
  const run = record(event.run);
  if (event.type === "points" && event.from < run.times.length) dropMoments(run, event.from);
  const changed = apply(run, event);
  if (changed === "status") watchStream();
  if (run === app.current && app.shown !== run && run.times.length) show(run);
  else if (run === app.shown || run === app.pinned || (run === app.current && changed === "claims")) {
    if (changed && changed !== "status" && changed !== "progress") emit(changed);
  }
  if (run === app.current && (changed === "status" || changed === "progress")) emit("status");
}

/** Draws `run` from now on; until its first point the one before it stays. */
export function show(run) {
  const before = app.shown;
  app.shown = run;
  if (app.wantedTime === null && before !== run) app.following = true;
  app.zoom = before?.clock === run.clock ? app.zoom : null;
  emit("run");
  if (before && before !== run && before !== app.current) drop(before);
}

/** Keeps the stream open exactly while the server has something left to say. */
export function watchStream() {
  clearTimeout(closing);
  const busy = [...app.runs.values()].some((run) => !isOver(run));
  if (busy) api.openStream();
  else closing = setTimeout(api.closeStream, 1500);
}

/** Says a word to the server about a run that this page needs no more. */
async function dismiss(run, word) {
  try {
    await api.act(`/api/runs/${run.id}/${word}`);
  } catch (problem) {
    // The server may have let it go by itself; that it does not answer at all is said elsewhere.
    if (!(problem instanceof api.Refusal)) throw problem;
  }
}

/** Lets a run go, and the server forget it; one that is still computed is cancelled by that. */
async function drop(run) {
  if (run === app.pinned || gone.has(run.id)) return;
  gone.add(run.id);
  app.runs.delete(run.id);
  await dismiss(run, "forget");
}

/** Another run takes the place of this one. While it is still drawn, its weights may be asked for. */
async function leave(run) {
  if (run === app.pinned) return;
  if (run !== app.shown) await drop(run);
  else if (LIVE.has(run.status)) await dismiss(run, "cancel");
}

/** Makes `begin()` (which answers with {run}) the current run, unless a later wish overtook it. */
async function adopt(begin, source) {
  const mine = ++order;
  document.documentElement.dataset.state = "queued";
  const answer = await begin().catch((problem) => {
    if (mine === order) emit("status");
    throw problem;
  });
  const run = record(answer.run);
  if (mine !== order) {
    await drop(run);
    return null;
  }
  const before = app.current;
  run.config ??= answer.config ?? null;
  app.current = run;
  app.source = source;
  app.changed = false;
  if (run.times.length) show(run);
  watchStream();
  saveNow();
  emit("status");
  if (before && before !== run) leave(before);
  return { run, answer };
}

export function startRun(config) {
  return adopt(() => api.act("/api/runs", { config }), null);
}

/** Asks the server to open a stored run {kind: "run", id} or the cell of a sweep {kind: "cell", id, x, y}. */
function ask(source) {
  const id = encodeURIComponent(source.id);
  if (source.kind === "run") return api.act(`/api/stored/${id}/open`);
  return api.act(`/api/sweeps/${id}/open`, { x: source.x, y: source.y });
}

export const openStored = (source) => adopt(() => ask(source), source);

/** Starts run A of an address that holds two. */
export async function startPinned(held) {
  const answer = await (held.o ? ask(held.o) : api.act("/api/runs", { config: held.c }));
  app.pinned = record(answer.run);
  app.pinned.config ??= held.c ?? null;
  app.pinnedSource = held.o ?? null;
  watchStream();
  emit("pin");
}

export async function command(word) {
  if (app.current) await api.act(`/api/runs/${app.current.id}/${word}`);
}

export function pin() {
  if (!app.current || !app.current.times.length) return;
  const before = app.pinned;
  app.pinned = app.current;
  app.pinnedSource = app.source;
  if (before && before !== app.current) drop(before);
  emit("pin");
}

export function unpin() {
  const before = app.pinned;
  app.pinned = null;
  app.pinnedSource = null;
  if (before && before !== app.current && before !== app.shown) drop(before);
  emit("pin");
}

/** The server was started again: what ran there is lost, what is drawn stays. */
export function sessionLost() {
  for (const run of app.runs.values()) {
    const message = "The server was started again, and this run is lost. Press Run.";
    if (!isOver(run)) apply(run, { type: "failed", message });
  }
  emit("status");
}
