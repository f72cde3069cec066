// The heat maps of each head at the moment of the slider, with its role.
import { app, byId, indexAt, make, momentTime, reaches } from "./app.js";
import { badge, diverging } from "./colours.js";
import { Heatmap } from "./heatmap.js";
import { cachedMoment, requestMoment } from "./moments.js";
import { columns } from "./panels.js";
import { number } from "./text.js";

const place = byId("heads");
const bars = byId("colourbars");
let built = "";
let cards = []; // {which, index, role, words, maps: Map(name -> Heatmap)}
const shown = { A: null, B: null }; // the moment that is drawn for each run
const requested = { A: "", B: "" }; // the one that should be drawn, as "run/index"
const answered = { A: "", B: "" }; // the last one that was answered
const runOf = (which) => (which === "A" ? app.pinned : app.shown);

/** Builds a card for every head, if the heads have changed. */
export function buildHeads() {
  const run = app.shown;
  const key = JSON.stringify([columns(), run?.heads, run?.matrices, columns().length > 1 ? [app.pinned.heads, app.pinned.matrices] : null]);
  if (key === built || !run?.panels.length) return;
  built = key;
  shown.A = null;
  shown.B = null;
  cards = [];
  const two = columns().length > 1;
  place.classList.toggle("two", two);
  place.replaceChildren(...columns().map((which) => columnOf(which, two)));
  buildBars(run.matrices);
}

function columnOf(which, two) {
  const run = runOf(which);
  const name = two ? make("h3", { text: nameOf(which) }) : null;
  const heads = make("div", { class: "head-cards" }, ...run.heads.map((head, k) => cardOf(which, run, head, k)));
  return make("div", { class: "head-column", "data-run": which }, name, heads);
}

/** The name of a run, and of which moment its weights are where it has none for that of the slider. */
function nameOf(which) {
  if (which === "B") return "B";
  const run = app.pinned;
  if (reaches(run, momentTime())) return "A, pinned";
  const unit = run.clock === "step" ? "step" : "time";
  return `A, pinned, at its last point: ${unit} ${number(run.times[run.times.length - 1])}`;
}

function cardOf(which, run, head, index) {
  const role = make("span", { class: "badge bx", text: "–" });
  const words = make("p", { class: "quiet head-words" });
  const maps = new Map();
  const figures = run.matrices.map((matrix) => {
    const map = new Heatmap(matrix, `${head.label}, ${matrix.name}`);
    maps.set(matrix.name, map);
    return make("figure", {}, map.canvas, make("figcaption", { text: matrix.name }));
  });
  cards.push({ which, index, role, words, maps });
  const top = make("div", { class: "head-top" }, make("h4", { text: head.label }), role);
  const shownMaps = make("div", { class: "maps" }, ...figures);
  return make("section", { class: "head", "data-head": index, "aria-label": head.label }, top, shownMaps, words);
}

function buildBars(matrices) {
  const barOf = ({ name }) =>
    make(
      "div",
      { class: "colourbar", "data-name": name },
      make("span", { class: "bar-name", text: name }),
      make("span", { class: "low" }),
      make("canvas", { width: 120, height: 10, "aria-hidden": "true" }),
      make("span", { class: "high" }),
    );
  bars.replaceChildren(...matrices.map(barOf));
}

/** Fetches the weights of the moment, and draws them when they arrive. */
export function moveHeads() {
  if (!cards.length) return;
  for (const which of columns()) {
    const run = runOf(which);
    if (!run?.times.length) continue;
    const last = run.times.length - 1;
    const index = Math.min(which === "A" ? indexAt(run, momentTime()) : app.index, last);
    requested[which] = `${run.id}/${index}`;
    requestMoment(which, run, index, (moment) => {
      answered[which] = `${run.id}/${index}`;
      if (moment && runOf(which) === run) {
        shown[which] = moment;
        drawHeads();
      }
      drawBusy();
    });
    if (app.wholeRun && !app.playing && index !== last && !cachedMoment(run, last)) requestMoment(`last ${which}`, run, last, () => drawHeads());
  }
  for (const name of place.querySelectorAll(".head-column h3")) name.textContent = nameOf(name.parentElement.dataset.run);
  drawRoles();
  drawBusy();
}

/** Says whether the weights on the page are still those of another moment. */
function drawBusy() {
  const busy = String(columns().some((which) => requested[which] !== answered[which]));
  if (place.getAttribute("aria-busy") !== busy) place.setAttribute("aria-busy", busy);
}

/** The largest number of each matrix: one scale for all heads and both runs. */
function scales() {
  const largest = {};
  const include = (moment) => {
    for (const head of moment?.heads ?? []) {
      for (const [name, rows] of Object.entries(head.matrices)) {
        for (const row of rows) for (const value of row) if (Math.abs(value) > (largest[name] ?? 0)) largest[name] = Math.abs(value);
      }
    }
  };
  for (const which of columns()) {
    include(shown[which]);
    const run = runOf(which);
    if (app.wholeRun && run?.times.length) include(cachedMoment(run, run.times.length - 1));
  }
  return largest;
}

export function drawHeads() {
  const largest = scales();
  for (const card of cards) {
    const head = shown[card.which]?.heads[card.index];
    for (const [name, map] of card.maps) map.set(head?.matrices[name] ?? null, largest[name] ?? 0);
    const text = head?.words ?? "";
    if (card.words.textContent !== text) card.words.textContent = text;
  }
  drawRoles();
  drawBars(largest);
}

function drawRoles() {
  for (const card of cards) {
    const run = runOf(card.which);
    const index = card.which === "A" ? indexAt(run, momentTime()) : app.index;
    const role = run?.roles[index]?.[card.index] ?? shown[card.which]?.heads[card.index]?.role ?? "–";
    if (card.role.textContent === role) continue;
    card.role.textContent = role;
    card.role.className = `badge ${badge(role)}`;
  }
}

function drawBars(largest) {
  const dark = document.documentElement.dataset.dark === "yes";
  for (const bar of bars.children) {
    const scale = largest[bar.dataset.name] ?? 0;
    bar.querySelector(".low").textContent = `−${number(scale)}`;
    bar.querySelector(".high").textContent = number(scale);
    const pen = bar.querySelector("canvas").getContext("2d");
    for (let x = 0; x < 120; x++) {
      pen.fillStyle = `rgb(${diverging(x / 59.5 - 1, 1, dark).join(",")})`;
      pen.fillRect(x, 0, 1, 10);
    }
  }
}
