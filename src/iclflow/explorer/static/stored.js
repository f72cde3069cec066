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
    make("h3", { text: name }, make("span", { class: "quiet found" })),
    rows.length ? make("ul", { class: "stored-list" }, ...rows) : make("p", { class: "quiet", text: empty }),
  );

/** The local date and time of seconds since 1970, to the minute. */
function dateOf(written) {
  if (!Number.isFinite(written)) return null;
  const here = new Date(1000 * (written - 60 * new Date(1000 * written).getTimezoneOffset()));
  return here.toISOString().slice(0, 16).replace("T", " ");
}

function runRow(run) {
  const loss = Number.isFinite(run.final_loss) ? `final loss ${number(run.final_loss)}` : null;
  const details = [dateOf(run.written), run.hash?.slice(0, 8), (run.result ?? run.status).replaceAll("_", " "), loss].filter(Boolean).join(", ");
  return row(run.name, details, `Open the run ${run.name}, ${details}`, () => openSource({ kind: "run", id: run.id }));
}

function sweepRow(sweep) {
  const runs = Number.isFinite(sweep.runs) ? plural(sweep.runs, "run") : null;
  const details = [dateOf(sweep.written), runs, sweep.status].filter(Boolean).join(", ");
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
    const newest = (all) => all.sort((a, b) => (b.written ?? 0) - (a.written ?? 0));
    lists.replaceChildren(
      section("Sweeps", newest(held.sweeps).map(sweepRow), "No sweep is stored here. `iclflow sweep FILE` creates one."),
      section("Runs", newest(held.runs).map(runRow), "No run is stored here. `iclflow run FILE` creates one."),
    );
    narrow();
  } catch (problem) {
    if (!(problem instanceof RequestError)) throw problem;
    failure(problem.message);
  }
}

/** Shows the rows that have every word of the search. */
function narrow() {
  const wanted = byId("stored-text").value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const row of lists.querySelectorAll("li")) {
    const words = row.textContent.toLowerCase();
    row.hidden = !wanted.every((word) => words.includes(word));
  }
  for (const one of lists.querySelectorAll("section")) {
    const rows = [...one.querySelectorAll("li")];
    const left = rows.filter((row) => !row.hidden).length;
    one.querySelector(".found").textContent = wanted.length && rows.length ? ` ${left} of ${rows.length}` : "";
  }
}

async function showSweep(wanted) {
  lists.hidden = byId("stored-search").hidden = true;
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
  lists.hidden = byId("stored-search").hidden = false;
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
  byId("stored-text").addEventListener("input", narrow);
}
