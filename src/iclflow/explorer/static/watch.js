// The page of trainings in other processes: what is drawn when, and what the buttons do.
import { byId, make, on } from "./app.js";
import * as api from "./api.js";
import { loadPlotly } from "./plots.js";
import { drawing, mark } from "./schedule.js";
import { showError, showNote } from "./notes.js";
import { wireTheme } from "./theme.js";
import { drawCursor, drawDistances, drawEmpty, drawExcess, drawLengths, drawLoss, logStep, pickLooks, watchBoxes } from "./watch-plots.js";
import { apply, count, have, newRecord } from "./watch-record.js";
import { load, save, training, view } from "./watch-state.js";
import { drawClock, drawLook, drawProblems, drawStatus, drawTrainings, drawVerdicts, drawWords } from "./watch-words.js";

drawing("clock", drawClock, 0, 0);
drawing("cursor", () => (drawCursor(), drawEmpty()), 0);
drawing("loss", drawLoss, 125, 1);
drawing("excess", drawExcess, 150);
drawing("distances", drawDistances, 150);
drawing("lengths", drawLengths, 150);
drawing("words", drawWords, 60);
drawing("look", drawLook, 100);
drawing("problems", drawProblems, 60);
drawing("verdicts", drawVerdicts, 60);
drawing("status", () => (drawStatus(), drawTrainings(choose)), 60);
drawing("tools", drawTools, 60);

const curves = () => mark("loss", "excess", "distances", "clock", "cursor", "tools");
const everything = () => (curves(), mark("lengths", "words", "look", "problems", "verdicts", "status"));

function drawTools() {
  byId("log-step").setAttribute("aria-pressed", String(logStep()));
  byId("log-loss").setAttribute("aria-pressed", String(view.logLoss));
  const labels = view.record.distances.length;
  byId("label-box").hidden = labels < 2;
  const select = byId("label");
  while (select.options.length < labels) select.append(make("option", { value: select.options.length, text: select.options.length + 1 }));
  select.value = String(view.label);
}

/** Handles one event of the stream. */
function handleEvent(event) {
  if (event.type === "trainings") {
    view.trainings = event.trainings;
    mark("status", "loss");
    return;
  }
  if (event.type === "start" && event.id !== view.chosen) return; // of a stream that is being closed
  const changed = apply(view.record, event);
  if (changed === "gap") {
    view.record = newRecord();
    api.closeStream();
    api.openStream();
    return;
  }
  if (changed === "all") everything();
  if (changed === "turn") {
    showNote(event.words);
    if (view.index !== null && view.index >= count(view.record)) view.index = null;
  }
  if (changed === "points" || changed === "turn") {
    curves();
    if (performance.getEntriesByName("first-look").length === 0 && count(view.record)) performance.mark("first-look");
  }
  if (changed === "look" && view.index === null) showLook(event.look);
  if (changed === "named") mark("words", "distances", "status");
  if (["words", "problems", "verdicts"].includes(changed)) mark(changed, "status");
}

function showLook(look) {
  view.look = look;
  mark("lengths", "look");
}

let asked = 0;
/** Goes to a look by its index; null: the last one, and then each that comes. */
async function goTo(index) {
  view.index = index;
  mark("clock", "cursor", "distances");
  save();
  const mine = ++asked;
  showError("look", "");
  if (index === null) return showLook(view.record.look);
  try {
    const look = await api.get(`/api/watch/${view.chosen}/looks/${index}`);
    if (mine === asked) showLook(look);
  } catch (problem) {
    if (!(problem instanceof api.RequestError)) throw problem;
    if (problem.status) showError("look", problem.message);
  }
}

/** Shows another training. */
function choose(id) {
  if (id === view.chosen) return;
  api.closeStream();
  asked++; // an answer about the other training comes too late
  showError("look", "");
  Object.assign(view, { chosen: id, record: newRecord(), label: 0, index: null, look: null });
  save();
  everything();
  api.openStream();
}

function wire() {
  byId("log-step").addEventListener("click", () => ((view.logStep = !logStep()), save(), curves()));
  byId("log-loss").addEventListener("click", () => ((view.logLoss = !view.logLoss), save(), curves(), mark("lengths")));
  byId("label").addEventListener("change", (event) => ((view.label = Number(event.target.value)), save(), everything()));
  byId("clock").addEventListener("input", (event) => goTo(Number(event.target.value)));
  byId("follow").addEventListener("click", () => goTo(null));
  pickLooks(goTo);
  on("theme", everything);
  api.listen({
    onEvent: handleEvent,
    onReach: (now, why) => showError("server", now ? "" : `${why || "The server does not answer."} The page retries.`),
    // The server was restarted: it knows neither this page nor what it has.
    onSessionLost: () => setTimeout(api.openStream),
    address: (session) => `/api/watch/events?session=${session}&training=${view.chosen}&have=${have(view.record)}`,
  });
  wireTheme();
  watchBoxes(everything);
}

async function boot() {
  load();
  // The token of the address is in a cookie now, and must not be part of links that are shared.
  if (location.search) save();
  try {
    view.trainings = await api.get("/api/watch");
  } catch (problem) {
    if (!(problem instanceof api.RequestError)) throw problem;
    setTimeout(boot, 1000);
    return;
  }
  if (!training()) view.chosen = view.trainings[0]?.id ?? null;
  if (!view.chosen) {
    showError("none", "No training is watched: start `iclflow explore --watch FOLDER`.");
    return;
  }
  if (view.index !== null && view.index >= training().looks) view.index = null;
  everything();
  await api.openStream();
  if (view.index !== null) goTo(view.index);
}

wire();
boot();
loadPlotly().then(everything, (problem) => showError("plotly", problem.message));
