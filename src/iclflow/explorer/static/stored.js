// The window with stored runs and sweeps.
import { app, byId, emit, make } from "./app.js";
import { get, RequestError } from "./api.js";
import { closeSweep, openSweep } from "./diagram.js";
import { openStored } from "./lifecycle.js";
import { number, plural } from "./text.js";

const dialog = byId("stored");
const lists = byId("stored-lists");

function row(main, details, label, act) {
  const name = make("span", { class: "stored-name", text: main });
  const button = make("button", { type: "button", text: "Open", "aria-label": label, onclick: act });
  return make("li", {}, name, make("span", { class: "quiet", text: details }), button);
}

const section = (name, rows, empty) =>
  make(
    "section",
    {},
    make("h3", { text: name }),
    rows.length ? make("ul", { class: "stored-list" }, ...rows) : make("p", { class: "quiet", text: empty }),
  );

function runRow(run) {
  const details = [run.result ?? run.status, Number.isFinite(run.final_loss) ? `final loss ${number(run.final_loss)}` : null].filter(Boolean).join(", ");
  return row(run.name, String(details).replaceAll("_", " "), `Open the run ${run.name}`, () => openSource({ kind: "run", id: run.id }));
}

function sweepRow(sweep) {
  const details = [Number.isFinite(sweep.runs) ? plural(sweep.runs, "run") : null, sweep.status].filter(Boolean).join(", ");
  return row(sweep.name, details, `Open the sweep ${sweep.name}`, () => showSweep({ id: sweep.id }));
}

/** Opens a run of the store, or a cell of a sweep, in the main view. */
export async function openSource(source) {
  try {
    const opened = await openStored(source);
    if (!opened) return null; // a later request has superseded this one
    dialog.close();
    emit("opened", opened.answer);
    return opened.answer.words ?? null;
  } catch (problem) {
    if (!(problem instanceof RequestError)) throw problem;
    failure(problem.message);
    return null;
  }
}

function failure(text) {
  const place = byId("sweep").hidden ? lists : byId("sweep-cell");
  if (place === lists) lists.replaceChildren(make("p", { class: "refusal", text }));
  else place.textContent = text;
}

async function fill() {
  lists.replaceChildren(make("p", { class: "quiet", text: "Searching for runs and sweeps." }));
  try {
    const held = await get("/api/stored");
    lists.replaceChildren(
      section("Sweeps", held.sweeps.map(sweepRow), "No sweep is stored here. `iclflow sweep FILE` creates one."),
      section("Runs", held.runs.map(runRow), "No run is stored here. `iclflow run FILE` creates one."),
    );
  } catch (problem) {
    if (!(problem instanceof RequestError)) throw problem;
    failure(problem.message);
  }
}

async function showSweep(wanted) {
  lists.hidden = true;
  byId("sweep").hidden = false;
  try {
    await openSweep(wanted, openSource);
  } catch (problem) {
    if (!(problem instanceof RequestError)) throw problem;
    failure(problem.message);
  }
  emit("scales");
}

function showLists() {
  closeSweep();
  lists.hidden = false;
  byId("sweep").hidden = true;
  fill();
  emit("scales");
}

export function openWindow() {
  if (!dialog.open) dialog.showModal();
  if (app.sweep) showSweep(app.sweep);
  else showLists();
}

export function wireStored() {
  byId("open-stored").addEventListener("click", openWindow);
  byId("sweep-back").addEventListener("click", showLists);
}
