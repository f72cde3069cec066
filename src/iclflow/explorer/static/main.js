// The page: what is drawn when, and what the buttons do.
import { app, byId, emit, on } from "./app.js";
import * as api from "./api.js";
import { boot, openedStored, requestRun, runNow } from "./boot.js";
import { save, saveNow } from "./address.js";
import { goToTime, syncClock, wireClock } from "./clock.js";
import { drawDifferences } from "./compare.js";
import { clearRefusals, isRefused } from "./controls.js";
import { drawDiagram } from "./diagram.js";
import { buildHeads, drawHeads, moveHeads } from "./heads.js";
import { wireKeys } from "./keys.js";
import { command, handleEvent, pin, sessionLost, unpin } from "./lifecycle.js";
import { drawCursor, drawLoss, onZoom, pickMoments } from "./loss.js";
import { buildPanels, markPanels, movePanels } from "./panels.js";
import { loadPlotly, watchSize } from "./plots.js";
import { drawOrigin } from "./presets.js";
import { drawing, mark, whenDrawn } from "./schedule.js";
import { showError, showNote } from "./notes.js";
import { drawStatus } from "./status.js";
import { wireStored } from "./stored.js";
import { wireTheme } from "./theme.js";
import { drawClaims, drawWords } from "./words.js";

// Every drawing has its own shortest interval; the slider has the shortest.
drawing("loss", drawLoss, 125, 1);
drawing("clock", moveClock, 0, 0);
drawing("cursor", () => (drawCursor(), movePanels()), 0);
drawing("weights", moveHeads, 90);
drawing("words", drawWords, 60);
drawing("claims", drawClaims, 200);
drawing("status", drawStatus, 60);
drawing("origin", drawOrigin, 60);

/** Syncs the slider with the points. What is drawn for its moment is redrawn if the moment has moved. */
function moveClock() {
  const before = app.index;
  syncClock();
  if (app.index !== before) mark("cursor", "weights", "words");
}

let lastState = "";
const everything = () => {
  mark("clock", "loss", "cursor", "weights", "words", "claims", "status");
  markPanels();
};
const build = () => {
  buildPanels(goToTime);
  buildHeads();
};

on("points", () => (mark("clock", "loss", "cursor", "weights", "words"), markPanels()));
on("theory", () => mark("loss"));
on("panels run pin", () => (build(), everything()));
on("run pin status", drawDifferences);
on("words", () => mark("words"));
on("claims", () => mark("claims"));
on("moment", () => (mark("clock", "cursor", "weights", "words"), save()));
on("scales pin", save);
on("config", () => {
  app.changed = true;
  mark("origin", "status");
  save();
  requestRun();
});
on("refusals", () => {
  app.refused = isRefused();
  mark("status");
});
on("size theme", () => (everything(), drawDiagram(), drawHeads()));
on("opened", openedStored);
on("status", () => {
  mark("status");
  const state = `${app.current?.id} ${app.current?.status}`;
  if (state === lastState) return; // progress alone moves no curve
  lastState = state;
  mark("loss", "clock", "claims", "origin");
  markPanels();
  noteEnd();
});

/** Sets a performance mark when a run that has ended is completely on screen. */
function noteEnd() {
  const run = app.current;
  if (!run || run.complete || app.shown !== run || !window.Plotly) return;
  if (!["ended", "settled"].includes(run.status)) return;
  run.complete = true;
  everything();
  whenDrawn(() => performance.mark("run-shown", { detail: run.id }));
}

function toggle(id, name, then) {
  byId(id).addEventListener("click", () => {
    app[name] = !app[name];
    app.zoom = null;
    drawToggles();
    emit("scales");
    then();
  });
}

function drawToggles() {
  byId("log-time").setAttribute("aria-pressed", String(app.logTime));
  byId("log-loss").setAttribute("aria-pressed", String(app.logLoss));
  byId("whole-run").setAttribute("aria-pressed", String(app.wholeRun));
}

function handleError(problem) {
  if (!(problem instanceof api.RequestError)) throw problem;
  if (problem.status) showError("command", problem.message);
}

function onClick(id, word) {
  byId(id).addEventListener("click", () => {
    showError("command", "");
    command(word).catch(handleError);
  });
}

async function share() {
  saveNow();
  try {
    await navigator.clipboard.writeText(location.href);
    showNote("Link copied: it contains the whole state of this page.");
  } catch {
    showNote("The browser does not allow copying. Copy the address of this page instead: it contains the whole state.");
  }
}

byId("run").addEventListener("click", () => {
  clearRefusals();
  runNow();
});
onClick("pause", "pause");
onClick("continue", "continue");
onClick("cancel", "cancel");
byId("pin").addEventListener("click", pin);
byId("unpin").addEventListener("click", unpin);
byId("share").addEventListener("click", share);
byId("auto").addEventListener("change", (event) => {
  app.auto = event.target.checked;
  mark("status");
});
toggle("log-time", "logTime", everything);
toggle("log-loss", "logLoss", () => mark("loss"));
toggle("whole-run", "wholeRun", () => (mark("weights"), drawHeads()));
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address behind the # holds the state
  byId("loss-title").focus();
});
document.addEventListener("click", (event) => {
  const menu = byId("exports");
  if (menu.open && !menu.contains(event.target)) menu.open = false;
});

wireTheme();
wireKeys();
wireClock();
wireStored();
watchSize();
onZoom(everything);
pickMoments(goToTime);
api.listen({
  onEvent: handleEvent,
  onReach: (now, why) => showError("server", now ? "" : `${why || "The server does not answer."} The page retries.`),
  onSessionLost: sessionLost,
});
boot(drawToggles, (version) =>
  loadPlotly(version).then(() => (everything(), noteEnd()), (problem) => showError("plotly", problem.message)),
);
