// The phase diagram of a sweep: a heat map whose cells open their runs.
import { app, byId, make } from "./app.js";
import { get } from "./api.js";
import { CIVIDIS } from "./colours.js";
import { axis, ink, layout, loadPlotly } from "./plots.js";
import { number, setting, title } from "./text.js";

const plot = byId("diagram");
const box = byId("diagram-box");
const readout = byId("sweep-cell");
const chosen = { x: byId("sweep-x"), y: byId("sweep-y"), value: byId("sweep-value") };
let sweep = null;
let diagram = null;
let cell = null; // [column, row] under the keyboard
let open = () => {};
let asked = 0;
let wired = false;

const short = (value) => (typeof value === "number" ? number(value) : setting(value));
const margin = { l: 76, r: 14, t: 10, b: 50 };

/** Shows the sweep {id, x, y, value}; `act(source)` opens a cell. */
export async function openSweep(wanted, act) {
  open = act;
  wire();
  sweep = await get(`/api/sweeps/${encodeURIComponent(wanted.id)}`);
  byId("sweep-name").textContent = sweep.name;
  const names = sweep.swept.map((one) => ({ value: one.name, label: one.name }));
  fill(chosen.x, names, wanted.x ?? sweep.defaults.x);
  fill(chosen.y, names, wanted.y ?? sweep.defaults.y);
  const measures = sweep.measures.map((one) => ({ value: one.name, label: one.words || one.name }));
  fill(chosen.value, measures, wanted.value ?? sweep.defaults.value);
  await refresh();
}

export function closeSweep() {
  sweep = null;
  app.sweep = null;
}

function fill(select, options, value) {
  select.replaceChildren(...options.map((one) => make("option", { value: one.value, text: one.label })));
  if (value) select.value = value;
}

async function refresh() {
  const mine = ++asked;
  const [x, y, value] = [chosen.x.value, chosen.y.value, chosen.value.value];
  app.sweep = { id: sweep.id, x, y, value };
  const address = `/api/sweeps/${encodeURIComponent(sweep.id)}/diagram?${new URLSearchParams({ x, y, value })}`;
  const [answer] = await Promise.all([get(address), loadPlotly()]);
  if (mine !== asked || !sweep) return;
  diagram = answer;
  cell = null;
  byId("sweep-words").textContent = diagram.words ?? "";
  drawDiagram();
  if (byId("sweep-table").open) table();
}

function ticks(values) {
  const stride = Math.ceil(values.length / 8);
  const at = values.map((_, k) => k).filter((k) => k % stride === 0);
  return { tickvals: at, ticktext: at.map((k) => short(values[k])) };
}

export function drawDiagram() {
  if (!diagram || !window.Plotly || !box.clientWidth) return;
  const colours = ink();
  const heat = {
    type: "heatmap",
    z: diagram.z,
    x: diagram.x.values.map((_, k) => k),
    y: diagram.y.values.map((_, k) => k),
    colorscale: CIVIDIS.map((colour, k) => [k / (CIVIDIS.length - 1), colour]),
    showscale: false, // its bar would set style attributes
    xgap: 1,
    ygap: 1,
    hoverinfo: "none",
    hoverongaps: false,
  };
  const frame = cell && { type: "rect", x0: cell[0] - 0.5, x1: cell[0] + 0.5, y0: cell[1] - 0.5, y1: cell[1] + 0.5, line: { color: colours.b, width: 3 } };
  const shown = layout(colours, {
    margin,
    width: box.clientWidth,
    height: box.clientHeight,
    hovermode: "closest",
    dragmode: false,
    xaxis: axis(colours, { ...ticks(diagram.x.values), showgrid: false, fixedrange: true, title: { text: diagram.x.name, standoff: 8 } }),
    yaxis: axis(colours, { ...ticks(diagram.y.values), showgrid: false, fixedrange: true, title: { text: diagram.y.name, standoff: 6 } }),
    shapes: frame ? [frame] : [],
  });
  window.Plotly.react(plot, [heat], shown, { displayModeBar: false });
  drawBar();
  if (!plot.watched) {
    plot.watched = true;
    plot.on("plotly_hover", ({ points }) => say(points[0].x, points[0].y));
    plot.on("plotly_click", ({ points }) => go(points[0].x, points[0].y));
  }
}

function drawBar() {
  const bar = byId("diagram-bar");
  const all = diagram.z.flat().filter(Number.isFinite);
  const [low, high] = all.length ? [Math.min(...all), Math.max(...all)] : [null, null];
  bar.querySelector(".low").textContent = number(low);
  bar.querySelector(".high").textContent = number(high);
  bar.querySelector(".bar-name").textContent = chosen.value.selectedOptions[0]?.textContent ?? "";
  const pen = bar.querySelector("canvas").getContext("2d");
  const fade = pen.createLinearGradient(0, 0, 240, 0);
  CIVIDIS.forEach((colour, k) => fade.addColorStop(k / (CIVIDIS.length - 1), colour));
  pen.fillStyle = fade;
  pen.fillRect(0, 0, 240, 12);
}

function text(column, row) {
  const where = `${diagram.x.name} ${short(diagram.x.values[column])}, ${diagram.y.name} ${short(diagram.y.values[row])}`;
  const value = diagram.z[row]?.[column] ?? null;
  if (value === null) return `${where}: nothing stored`;
  const spread = diagram.spread?.[row]?.[column];
  const count = diagram.count?.[row]?.[column];
  const more = [Number.isFinite(spread) ? `spread ${number(spread)}` : null, Number.isFinite(count) ? `runs ${count}` : null].filter(Boolean);
  return `${where}: ${number(value, 4)}${more.length ? ` (${more.join(", ")})` : ""}`;
}

const say = (column, row) => {
  readout.textContent = text(column, row);
};

async function go(column, row) {
  say(column, row);
  readout.textContent = `${text(column, row)}. Opening its run.`;
  const source = {
    kind: "cell",
    id: sweep.id,
    x: { name: diagram.x.name, value: diagram.x.values[column] },
    y: { name: diagram.y.name, value: diagram.y.values[row] },
  };
  await open(source);
}

function key(event) {
  if (!diagram) return;
  const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  const [column, row] = cell ?? [0, 0];
  if (event.key === "Enter" && cell) go(column, row);
  else if (event.key in moves) {
    const move = cell ? moves[event.key] : [0, 0];
    const clip = (at, count) => Math.min(Math.max(at, 0), count - 1);
    cell = [clip(column + move[0], diagram.x.values.length), clip(row + move[1], diagram.y.values.length)];
    say(...cell);
    drawDiagram();
  } else return;
  event.preventDefault();
}

/** The same numbers as a table of buttons, for those who cannot use the picture. */
function table() {
  const head = make("tr", {}, make("th", { text: `${diagram.y.name} \\ ${diagram.x.name}` }), ...diagram.x.values.map((value) => make("th", { scope: "col", text: short(value) })));
  const rows = diagram.y.values.map((value, row) =>
    make("tr", {}, make("th", { scope: "row", text: short(value) }), ...diagram.x.values.map((_, column) => make("td", {}, make("button", { type: "button", "aria-label": `Open: ${text(column, row)}`, text: number(diagram.z[row]?.[column] ?? null), onclick: () => go(column, row) })))),
  );
  byId("sweep-table").querySelector(".table-box").replaceChildren(make("table", {}, make("caption", { text: title(chosen.value.value) }), make("thead", {}, head), make("tbody", {}, ...rows)));
}

function wire() {
  if (wired) return;
  wired = true;
  for (const select of Object.values(chosen)) select.addEventListener("change", refresh);
  box.addEventListener("keydown", key);
  byId("sweep-table").addEventListener("toggle", (event) => {
    if (event.target.open && diagram) table();
  });
}
