// From an empty page to a run: start data, address, reload; and a new run after every change.
import { app, byId, emit } from "./app.js";
import * as api from "./api.js";
import { isForeign, load, reloaded, save } from "./address.js";
import { clearRefusals, discardAnswers, drawControls, drawLimits, showRefusal } from "./controls.js";
import { openStored, record, show, startPinned, startRun, watchStream } from "./lifecycle.js";
import { buildPresets, drawPreset } from "./presets.js";
import { LIVE } from "./runs.js";
import { showError } from "./notes.js";
import { openWindow } from "./stored.js";

const PAUSE = 200; // ms without a change before a run starts
const LONGEST = 600; // ms after which a run starts though the reader still drags
let timer = null;
let since = null; // time of the first change that no run has been started for
let checks = 0;
let drawToggles = () => {};

/** After a change: starts a run soon, or only checks the config when runs start with the button. */
export function requestRun() {
  const now = performance.now();
  since ??= now;
  // A run without points is not replaced while the reader drags: otherwise none would ever be seen.
  const early = LIVE.has(app.current?.status) && !app.current.times.length;
  const left = early ? PAUSE : Math.min(PAUSE, Math.max(0, since + LONGEST - now));
  clearTimeout(timer);
  timer = setTimeout(app.auto ? runNow : () => checkConfig().catch(handleError), left);
}

/** Whether the server accepts the config; if not, shows why. A later check supersedes an earlier one. */
async function checkConfig() {
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
  showError("command", "");
  if (!app.config) return;
  try {
    if (await checkConfig()) await startRun(app.config);
  } catch (problem) {
    handleError(problem);
  }
}

function handleError(problem) {
  if (!(problem instanceof api.RequestError)) throw problem;
  emit("status");
  if (problem.status) showRefusal(problem);
}

/** Takes the config of a preset and runs it. */
export function choosePreset(preset) {
  discardAnswers();
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
  discardAnswers();
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

async function restore(saved) {
  discardAnswers();
  const preset = app.start.presets.find((one) => one.id === saved.p);
  app.preset = preset?.id ?? null;
  app.config = saved.c ?? structuredClone(preset?.config ?? app.start.presets[0].config);
  app.wantedTime = Number.isFinite(saved.t) ? saved.t : null;
  app.following = app.wantedTime === null;
  app.logTime = Boolean(saved.x);
  app.logLoss = Boolean(saved.y);
  app.wholeRun = !saved.m;
  app.sweep = saved.s ?? null;
  drawToggles();
  drawPreset();
  drawControls();
  if (await reconnect(saved)) return;
  try {
    if (saved.a) await startPinned(saved.a);
    if (saved.o) {
      const opened = await openStored(saved.o);
      if (opened) openedStored(opened.answer);
    } else if (await checkConfig()) await startRun(app.config);
  } catch (problem) {
    handleError(problem);
  }
  if (app.sweep && !saved.o) openWindow();
}

/** After a reload: reconnects to the runs of this tab. Resolves to whether it found them. */
async function reconnect(saved) {
  const tab = reloaded();
  if (!tab?.current || !api.restoreSession() || !(await api.openStream())) return false;
  const deadline = performance.now() + 1500;
  while (!app.runs.has(tab.current) || (tab.pinned && !app.runs.has(tab.pinned))) {
    if (performance.now() > deadline) return false;
    await new Promise((resolve) => setTimeout(resolve, 30));
  }
  app.source = saved.o ?? null;
  app.pinnedSource = saved.a?.o ?? null;
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

/** Fetches the start data, fills the page and restores the state of the address. */
export async function boot(toggles, loadPlots) {
  drawToggles = toggles;
  // The token of the address is in a cookie now, and must not be part of links that are shared.
  if (location.search) history.replaceState(null, "", location.pathname + location.hash);
  try {
    app.start = await api.get("/api/start");
  } catch (problem) {
    if (!(problem instanceof api.RequestError)) throw problem;
    showError("start", problem.status ? problem.message : "");
    setTimeout(() => boot(toggles, loadPlots), 1000);
    return;
  }
  showError("start", "");
  loadPlots(app.start.plotly);
  if (matchMedia("(max-width: 760px)").matches) byId("fold-controls").open = false;
  buildPresets(choosePreset);
  drawLimits();
  const saved = load((text) => showError("address", text));
  if (saved) await restore(saved);
  else if (app.start.presets.length) choosePreset(app.start.presets[0]);
  window.addEventListener("hashchange", () => {
    if (isForeign()) location.reload();
  });
}
