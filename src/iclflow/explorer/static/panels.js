// The linked line panels: small multiples below the loss, with the numbers of the moment as their legend.
import { app, byId, indexAt, make, momentTime, reaches } from "./app.js";
import { axis, chooseMoment, hasPlotly, ink, layout, placeCursor, placed, styleOf, timeAxis } from "./plots.js";
import { drawing, forgetDrawing, mark } from "./schedule.js";
import { number } from "./text.js";
import { logRange, logTicks } from "./ticks.js";

const margin = { l: 50, r: 10, t: 8, b: 30 };
const MANY = 6; // more series than this get more room for their names
const ROUNDING = 1e-12; // of the largest number of a panel: as in the sentences of `_text.py`
const MOST_POINTS = 6000; // in all lines of one panel together
const LEFT = [-1.1, 1.1]; // shares of a task: all of it is left, or as much too much was taken
const place = byId("panels");
let built = ""; // what the panels on the page are for
let cells = []; // {panel, which, box, plot, values}

const runOf = (which) => (which === "A" ? app.pinned : app.shown);

/** Which runs have a column: only the shown one, or A and B. */
export function columns() {
  const two = app.pinned && app.shown && app.pinned !== app.shown && app.pinned.times.length;
  return two ? ["A", "B"] : ["B"];
}

/** Builds the panels of the run anew if they are others than those on the page. */
export function buildPanels(pick) {
  const panels = app.shown?.panels ?? [];
  const key = JSON.stringify([columns(), panels, columns().length > 1 ? app.pinned.panels : null]);
  if (key === built || !panels.length) return;
  built = key;
  for (const cell of cells) {
    forgetDrawing(`panel ${cell.name}`);
    if (hasPlotly() && cell.made) window.Plotly.purge(cell.plot);
  }
  cells = [];
  place.classList.toggle("two", columns().length > 1);
  place.replaceChildren(...panels.map((panel) => panelOf(panel, pick)));
}

function panelOf(panel, pick) {
  const parts = columns().map((which) => {
    const plot = make("div");
    const values = make("div", { class: panel.series.length > MANY && !panel.over ? "values many" : "values" });
    const box = make("div", { class: "plotbox small" }, plot, make("i", { class: "cursor", hidden: true }));
    const own = runOf(which).panels.find((one) => one.id === panel.id);
    const cell = { name: `${which} ${panel.id}`, panel: own ?? null, which, box, plot, values, made: false, texts: [] };
    cells.push(cell);
    if (own?.over) {
      drawing(`panel ${cell.name}`, () => drawLevels(cell), 60);
      values.append(...levelKeys(own));
    } else {
      drawing(`panel ${cell.name}`, () => drawPanel(cell), 160);
      chooseMoment(box, () => margin, pick);
      if (own) values.append(...own.series.map((name, k) => seriesKey(cell, name, k)));
      else values.textContent = "This run has no such panel.";
    }
    return make("div", { class: "part", "data-run": which }, values, box);
  });
  const head = make("h3", { text: panel.title });
  const words = make("p", { class: "quiet", text: panel.words ?? "", title: panel.words ?? "" });
  return make("section", { class: "panel", "data-panel": panel.id, "aria-label": panel.title }, head, words, make("div", { class: "parts" }, ...parts));
}

function seriesKey(cell, name, k) {
  const shown = make("b");
  cell.texts.push(shown);
  return make("span", { class: "key" }, make("i", { class: `series s${(k % 7) + 1} dash${Math.floor(k / 7) % 4}` }), name, " ", shown);
}

/** What is drawn of the moment: the curve, and what is behind it. */
function levelKeys(panel) {
  const curve = make("span", { class: "key" }, make("i", { class: "series s1 dash0" }), panel.y);
  return [curve, make("span", { class: "key", text: `grey: ${panel.over.behind}` })];
}

export function markPanels() {
  mark(...cells.map((cell) => `panel ${cell.name}`));
}

function drawPanel(cell) {
  const run = runOf(cell.which);
  if (!hasPlotly() || !run || !cell.panel || !cell.box.clientWidth) return;
  const colours = ink();
  const { panel } = cell;
  const values = run.lines[panel.id] ?? [];
  const count = Math.min(values.length, run.times.length);
  const stride = Math.max(1, Math.ceil((count * panel.series.length) / MOST_POINTS));
  const kept = [];
  for (let k = 0; k < count; k += stride) kept.push(k);
  if (count && kept[kept.length - 1] !== count - 1) kept.push(count - 1);
  const times = kept.map((k) => run.times[k]);
  const traces = panel.series.map((name, s) => ({
    ...placed(times, kept.map((k) => values[k]?.[s] ?? null), panel.log),
    mode: "lines",
    name,
    line: { ...styleOf(s, colours), width: 1.8 },
    hoverinfo: "skip",
  }));
  const shown = layout(colours, {
    margin,
    width: cell.box.clientWidth,
    height: cell.box.clientHeight,
    xaxis: timeAxis(colours, 5),
    yaxis: axis(colours, { title: yTitle(panel), ...scaleOf(panel, traces, colours) }),
  });
  // On a linear axis a number is zero far above the smallest one that a computer has.
  const sizes = traces.flatMap((trace) => trace.y.map(Math.abs)).filter(Number.isFinite);
  cell.least = panel.log ? undefined : ROUNDING * sizes.reduce((a, b) => Math.max(a, b), 1);
  window.Plotly.react(cell.plot, traces, shown, { staticPlot: true, displayModeBar: false });
  cell.made = true;
  moveIn(cell);
}

/** A curve of the moment, over its levels; behind it how much there is of each. */
function drawLevels(cell) {
  const run = runOf(cell.which);
  if (!hasPlotly() || !run || !cell.panel || !cell.box.clientWidth) return;
  const colours = ink();
  const { over, y } = cell.panel;
  const rows = run.lines[cell.panel.id] ?? [];
  const time = momentTime();
  const row = (reaches(run, time) && rows[indexAt(run, time)]) || [];
  const common = { x: over.x, mode: "lines", hoverinfo: "skip" };
  const ground = { yaxis: "y2", fill: "tozeroy", fillcolor: colours.grid, line: { width: 0, color: colours.grid } };
  const behind = { ...common, ...ground, y: over.mass };
  const curve = { ...common, y: over.x.map((_, k) => row[k] ?? null), line: { ...styleOf(0, colours), width: 1.8 } };
  const zero = { zeroline: true, zerolinecolor: colours.line };
  const shown = layout(colours, {
    margin: { ...margin, b: 42 },
    width: cell.box.clientWidth,
    height: cell.box.clientHeight,
    xaxis: axis(colours, { title: { text: over.title, standoff: 4, font: { size: 11 } }, range: [0, over.x.at(-1)], nticks: 6 }),
    yaxis: axis(colours, { title: yTitle({ y }), range: LEFT, dtick: 0.5, overlaying: "y2", ...zero }),
    yaxis2: { range: [0, 2], visible: false, fixedrange: true },
  });
  window.Plotly.react(cell.plot, [behind, curve], shown, { staticPlot: true, displayModeBar: false });
  cell.made = true;
}

/** The scale of the vertical axis of a panel. Where all numbers are zero up to rounding, the line is flat. */
export function scaleOf(panel, traces, colours) {
  if (!panel.log) {
    const above = (size) => traces.some((trace) => trace.y.some((value) => Math.abs(value) >= size));
    if (!above(ROUNDING)) return { nticks: 5, zeroline: true, zerolinecolor: colours.line, range: [-1, 1] };
    const large = above(1e-3);
    const short = large ? {} : { tickformat: "~e" }; // 0.0000005 would run into the title
    return { nticks: 5, zeroline: true, zerolinecolor: colours.line, ...short };
  }
  const range = logRange(traces.map((trace) => trace.y));
  return { type: "log", range, ...logTicks(range, 4) };
}

const yTitle = (panel) => (panel.y ? { text: panel.y, standoff: 2, font: { size: 11 } } : undefined);

function moveIn(cell, wide = cell.box.clientWidth) {
  const run = runOf(cell.which);
  if (!run || !cell.panel) return;
  if (cell.panel.over) return mark(`panel ${cell.name}`);
  const time = momentTime();
  placeCursor(cell.box, margin, time, wide);
  // A run that ended before the moment has no number for it.
  const row = (reaches(run, time) && run.lines[cell.panel.id]?.[indexAt(run, time)]) || [];
  cell.texts.forEach((shown, k) => {
    const text = number(row[k] ?? null, 3, cell.least);
    if (shown.textContent !== text) shown.textContent = text;
  });
}

/** Moves the cursor and the numbers of every panel to the moment. */
export function movePanels() {
  // All widths are read before anything is written: in turn, every panel would lay the page out again.
  const widths = cells.map((cell) => cell.box.clientWidth);
  cells.forEach((cell, k) => moveIn(cell, widths[k]));
}
