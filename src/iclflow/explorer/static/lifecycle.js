// Starting, stopping, pinning and following runs.
import { app, emit } from "./app.js";
import * as api from "./api.js";
import { LIVE, apply, isOver, newRun } from "./runs.js";
import { saveNow } from "./address.js";
import { dropMoments } from "./moments.js";

const forgotten = new Set(); // ids of forgotten runs, whose late events are dropped
let order = 0; // number of the last request for a run: only that one counts
let closing = null;

export function record(id) {
  if (!app.runs.has(id)) app.runs.set(id, newRun(id));
  return app.runs.get(id);
}

/** Handles one event of the stream. */
export function handleEvent(event) {
  if (event.type === "forgotten") {
    forgotten.add(event.run);
    app.runs.delete(event.run);
    return;
  }
  if (forgotten.has(event.run)) return;
  const run = record(event.run);
  if (event.type === "points" && event.from < run.times.length) dropMoments(run, event.from);
  const changed = apply(run, event);
  if (changed === "status") watchStream();
  if (run === app.current && app.shown !== run && run.times.length) show(run);
  // Theory is known before there are points, and verdicts are those of the run that the controls describe.
  else if (run === app.shown || run === app.pinned || (run === app.current && ["claims", "theory"].includes(changed))) {
    if (changed && changed !== "status" && changed !== "progress") emit(changed);
  }
  if (run === app.current && (changed === "status" || changed === "progress")) emit("status");
}

/** Draws `run` from now on; it is called when the run has its first point. */
export function show(run) {
  const before = app.shown;
  app.shown = run;
  if (app.wantedTime === null && before !== run) app.following = true;
  app.zoom = before?.clock === run.clock ? app.zoom : null;
  emit("run");
  if (before && before !== run && before !== app.current) drop(before);
}

/** Keeps the stream open while any run may still have events. */
export function watchStream() {
  clearTimeout(closing);
  const busy = [...app.runs.values()].some((run) => !isOver(run));
  if (busy) api.openStream();
  else closing = setTimeout(api.closeStream, 1500);
}

/** Sends an action for a run that this page no longer needs. */
async function dismiss(run, action) {
  try {
    await api.act(`/api/runs/${run.id}/${action}`);
  } catch (problem) {
    // The server may have dropped it already; that it does not answer at all is shown elsewhere.
    if (!(problem instanceof api.RequestError)) throw problem;
  }
}

/** Drops a run here and on the server, which cancels it if it is still under way. */
async function drop(run) {
  if (run === app.pinned || forgotten.has(run.id)) return;
  forgotten.add(run.id);
  app.runs.delete(run.id);
  await dismiss(run, "forget");
}

/** Releases a run that another one replaces. While it is drawn, its weights may still be requested. */
async function release(run) {
  if (run === app.pinned) return;
  if (run !== app.shown) await drop(run);
  else if (LIVE.has(run.status)) await dismiss(run, "cancel");
}

/** Makes the run of `begin()` the current one, unless a later request has superseded it. */
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
  // At once, not with the next frame: until then the page would be in the state of the run before.
  document.documentElement.dataset.state = run.status;
  if (run.times.length) show(run);
  watchStream();
  saveNow();
  emit("status");
  if (before && before !== run) release(before);
  return { run, answer };
}

export function startRun(config) {
  return adopt(() => api.act("/api/runs", { config }), null);
}

/** Asks the server to open a stored run {kind: "run", id} or the cell of a sweep {kind: "cell", id, x, y}. */
function requestStored(source) {
  const id = encodeURIComponent(source.id);
  if (source.kind === "run") return api.act(`/api/stored/${id}/open`);
  return api.act(`/api/sweeps/${id}/open`, { x: source.x, y: source.y });
}

export const openStored = (source) => adopt(() => requestStored(source), source);

/** Starts run A of an address that holds two. */
export async function startPinned(saved) {
  const answer = await (saved.o ? requestStored(saved.o) : api.act("/api/runs", { config: saved.c }));
  app.pinned = record(answer.run);
  app.pinned.config ??= saved.c ?? null;
  app.pinnedSource = saved.o ?? null;
  watchStream();
  emit("pin");
}

export async function command(action) {
  if (app.current) await api.act(`/api/runs/${app.current.id}/${action}`);
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

/** The server was restarted: runs under way are lost, what is drawn stays. */
export function sessionLost() {
  for (const run of app.runs.values()) {
    const message = "The server was restarted, and this run is lost. Press Run.";
    if (!isOver(run)) apply(run, { type: "failed", message });
  }
  emit("status");
}
