// From an empty page to a run: the start data, the address, a reload; and the wish for a run on every change.
import { app, byId, emit } from "./app.js";
import * as api from "./api.js";
import { foreign, load, reloaded, save } from "./address.js";
import { clearRefusals, drawControls, drawLimits, overtake, showRefusal } from "./controls.js";
import { openStored, record, show, startPinned, startRun, watchStream } from "./lifecycle.js";
import { buildPresets, drawPreset } from "./presets.js";
import { LIVE } from "./runs.js";
import { complain } from "./status.js";
import { openWindow } from "./stored.js";

const PAUSE = 200; // ms without a change before a run starts
const LONGEST = 600; // ms after which a run starts though a hand still moves
let timer = null;
let since = null; // when the changes began that no run has been started for
let checks = 0;
let drawToggles = () => {};

/** After a change: starts a run soon, or only checks the config when runs start by hand. */
export function wish() {
  const now = performance.now();
  since ??= now;
  // A run that has no point yet is not replaced while the hand moves: else none would ever be seen.
  const early = LIVE.has(app.current?.status) && !app.current.times.length;
  const left = early ? PAUSE : Math.min(PAUSE, Math.max(0, since + LONGEST - now));
  clearTimeout(timer);
  timer = setTimeout(app.auto ? runNow : () => fits().catch(refused), left);
}

/** Whether the server takes the config; if not, says why. A later question makes an earlier one void. */
async function fits() {
  since = null;
  const mine = ++checks;
  const answer = await api.post("/api/check", { config: app.config });
  if (mine !== checks) return false;
  if (answer.ok) clearRefusals();
  else showRefusal(answer);
  return answer.ok;
}

export async function runNow() {
  clearTimeout(timer);
  complain("command", "");
  if (!app.config) return;
  try {
    if (await fits()) await startRun(app.config);
  } catch (problem) {
    refused(problem);
  }
}

function refused(problem) {
  if (!(problem instanceof api.Refusal)) throw problem;
  emit("status");
  if (problem.status) showRefusal(problem);
}

/** Takes the config of a preset and runs it. */
export function choosePreset(preset) {
  overtake();
  app.preset = preset.id;
  app.opened = null;
  app.config = structuredClone(preset.config);
  app.source = null;
  app.wantedTime = null;
  app.following = true;
  app.zoom = null;
  // Points saved in equal ratios are meant for a log axis.
  app.logTime = preset.config.save?.kind === "log";
  drawToggles();
  drawPreset();
  drawControls();
  clearRefusals();
  if (matchMedia("(max-width: 760px)").matches) byId("fold-presets").open = false;
  save();
  runNow();
}

/** A stored run was opened: the page is about it, and no longer about a preset. */
export function openedStored(opened) {
  overtake();
  clearTimeout(timer);
  checks++;
  app.preset = null;
  app.opened = { ...opened, config: structuredClone(opened.config) };
  app.config = structuredClone(opened.config);
  drawPreset();
  drawControls();
  clearRefusals();
  save();
  emit("status");
}

async function restore(held) {
  overtake();
  const preset = app.start.presets.find((one) => one.id === held.p);
  app.preset = preset?.id ?? null;
  app.config = held.c ?? structuredClone(preset?.config ?? app.start.presets[0].config);
  app.wantedTime = Number.isFinite(held.t) ? held.t : null;
  app.following = app.wantedTime === null;
  app.logTime = Boolean(held.x);
  app.logLoss = Boolean(held.y);
  app.wholeRun = !held.m;
  app.sweep = held.s ?? null;
  drawToggles();
  drawPreset();
  drawControls();
  if (await found(held)) return;
  try {
    if (held.a) await startPinned(held.a);
    if (held.o) {
      const opened = await openStored(held.o);
      if (opened) openedStored(opened.answer);
    } else if (await fits()) await startRun(app.config);
  } catch (problem) {
    refused(problem);
  }
  if (app.sweep && !held.o) openWindow();
}

/** After a reload: takes up the runs of this tab where they are. Answers whether it found them. */
async function found(held) {
  const tab = reloaded();
  if (!tab?.current || !api.oldSession() || !(await api.openStream())) return false;
  const give = performance.now() + 1500;
  while (!app.runs.has(tab.current) || (tab.pinned && !app.runs.has(tab.pinned))) {
    if (performance.now() > give) return false;
    await new Promise((go) => setTimeout(go, 30));
  }
  app.source = held.o ?? null;
  app.pinnedSource = held.a?.o ?? null;
  if (tab.pinned) app.pinned = record(tab.pinned);
  app.current = record(tab.current);
  const { stored, config } = app.current;
  if (app.source && stored) openedStored({ ...stored, config });
  if (app.current.times.length) show(app.current);
  if (app.pinned) emit("pin");
  emit("status");
  watchStream();
  return true;
}

/** Asks the server what there is, fills the page and takes up the state of the address. */
export async function boot(toggles, loadPlots) {
  drawToggles = toggles;
  // A token in the address has done its work: it is in a cookie now, and no part of links to share.
  if (location.search) history.replaceState(null, "", location.pathname + location.hash);
  try {
    app.start = await api.get("/api/start");
  } catch (problem) {
    if (!(problem instanceof api.Refusal)) throw problem;
    complain("start", problem.status ? problem.message : "");
    setTimeout(() => boot(toggles, loadPlots), 1000);
    return;
  }
  complain("start", "");
  loadPlots(app.start.plotly);
  if (matchMedia("(max-width: 760px)").matches) byId("fold-controls").open = false;
  buildPresets(choosePreset);
  drawLimits();
  const held = load((text) => complain("address", text));
  if (held) await restore(held);
  else if (app.start.presets.length) choosePreset(app.start.presets[0]);
  window.addEventListener("hashchange", () => {
    if (foreign()) location.reload();
  });
}
