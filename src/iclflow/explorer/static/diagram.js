// The phase diagram of a sweep: a heat map whose cells open their runs.
import { app, byId, make } from "./app.js";
import { get, RequestError } from "./api.js";
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
let latest = 0;
let wired = false;

const short = (value) => (typeof value === "number" ? number(value) : setting(value));
const margin = { l: 76, r: 14, t: 10, b: 50 };

/** Shows the sweep {id, x, y, value}; `act(source)` opens a cell. */
export async function openSweep(wanted, act) {
  open = act;
  wire();
  sweep = await get(`/api/sweeps/${encodeURIComponent(wanted.id)}`);
  byId("sweep-name").textContent = sweep.name;
  const swept = sweep.swept.length ? sweep.swept : [{ name: sweep.defaults.x }];
  const names = swept.map((one) => ({ value: one.name, label: one.name }));
  fill(chosen.x, names, wanted.x ?? sweep.defaults.x);
  fill(chosen.y, [{ value: "", label: "nothing" }, ...names], (wanted.x ? wanted.y : sweep.defaults.y) ?? "");
  if (chosen.y.value === chosen.x.value) chosen.y.value = "";
  const measures = sweep.measures.map((one) => ({ value: one.name, label: title(one.name) }));
  fill(chosen.value, measures, wanted.value ?? sweep.defaults.value);
  await refresh();
}

export function closeSweep() {
  sweep = null;
  app.sweep = null;
}

function fill(select, options, value) {
  select.replaceChildren(...options.map((one) => make("option", { value: one.value, text: one.label })));
  select.value = value;
  if (select.selectedIndex < 0) select.selectedIndex = 0; // an address may name a value that does not exist
}

/** No setting can be on both axes: each choice excludes that of the other. */
function exclude() {
  for (const [own, other] of [[chosen.x, chosen.y], [chosen.y, chosen.x]]) {
    for (const option of own.options) option.disabled = option.value !== "" && option.value === other.value;
  }
}

async function refresh() {
  const mine = ++latest;
  exclude();
  const [x, y, value] = [chosen.x.value, chosen.y.value || null, chosen.value.value];
  app.sweep = { id: sweep.id, x, y, value };
  const wanted = new URLSearchParams(y ? { x, y, value } : { x, value });
  const address = `/api/sweeps/${encodeURIComponent(sweep.id)}/diagram?${wanted}`;
  const [answer] = await Promise.all([get(address), loadPlotly()]);
  if (mine !== latest || !sweep) return;
  diagram = answer;
  cell = null;
  const measure = sweep.measures.find((one) => one.name === value);
  byId("sweep-words").textContent = [measure?.words, diagram.words].filter(Boolean).join(" – ");
  drawDiagram();
  if (byId("sweep-table").open) table();
}

/** The reader chose other axes or another value. */
async function chose() {
  try {
    await refresh();
  } catch (problem) {
    if (!(problem instanceof RequestError)) throw problem;
    byId("sweep-words").textContent = problem.message;
  }
}

function ticks({ name, values }) {
  if (name === null) return { tickvals: [], ticktext: [] };
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
  const side = (at) => [at - 0.5, at + 0.5];
  const [[x0, x1], [y0, y1]] = (cell ?? [0, 0]).map(side);
  const frame = cell && { type: "rect", x0, x1, y0, y1, line: { color: colours.b, width: 3 } };
  const axisOf = (shown, standoff) =>
    axis(colours, { ...ticks(shown), showgrid: false, fixedrange: true, title: { text: shown.name ?? "", standoff } });
  const shown = layout(colours, {
    margin,
    width: box.clientWidth,
    height: box.clientHeight,
    hovermode: "closest",
    dragmode: false,
    xaxis: axisOf(diagram.x, 8),
    yaxis: axisOf(diagram.y, 6),
    shapes: frame ? [frame] : [],
  });
  window.Plotly.react(plot, [heat], shown, { displayModeBar: false });
  drawBar();
  if (!plot.watched) {
    plot.watched = true;
    plot.on("plotly_hover", ({ points }) => announce(points[0].x, points[0].y));
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
  const at = ({ name, values }, place) => (name === null ? null : `${name} ${short(values[place])}`);
  const where = [at(diagram.x, column), at(diagram.y, row)].filter(Boolean).join(", ");
  const value = diagram.z[row]?.[column] ?? null;
  if (value === null) return `${where}: nothing stored`;
  const spread = diagram.spread?.[row]?.[column];
  const count = diagram.count?.[row]?.[column];
  const more = [];
  if (count > 1 && Number.isFinite(spread)) more.push(`spread ${number(spread)}`);
  if (count > 1) more.push(`runs ${count}`);
  const name = title(app.sweep.value).toLowerCase();
  return `${where}: ${name} ${number(value, 4)}${more.length ? ` (${more.join(", ")})` : ""}`;
}

/** Shows a cell as text; read aloud only if the keyboard chose it, since a mouse passes over many. */
const announce = (column, row, aloud = false) => {
  readout.setAttribute("aria-live", aloud ? "polite" : "off");
  readout.textContent = text(column, row);
};

async function go(column, row) {
  announce(column, row, true);
  readout.textContent = `${text(column, row)}. Opening its run.`;
  const source = {
    kind: "cell",
    id: sweep.id,
    x: { name: diagram.x.name, value: diagram.x.values[column] },
  };
  if (diagram.y.name !== null) source.y = { name: diagram.y.name, value: diagram.y.values[row] };
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
    announce(...cell, true);
    drawDiagram();
  } else return;
  event.preventDefault();
}

/** The same numbers as a table of buttons, for those who cannot use the picture. */
function table() {
  const { x, y, z } = diagram;
  const corner = y.name === null ? x.name : `${y.name} \\ ${x.name}`;
  const heads = x.values.map((value) => make("th", { scope: "col", text: short(value) }));
  const button = (column, row) =>
    make("button", {
      type: "button",
      "aria-label": `Open: ${text(column, row)}`,
      text: number(z[row]?.[column] ?? null),
      onclick: () => go(column, row),
    });
  const rows = y.values.map((value, row) => {
    const name = make("th", { scope: "row", text: y.name === null ? "value" : short(value) });
    return make("tr", {}, name, ...x.values.map((_, column) => make("td", {}, button(column, row))));
  });
  const head = make("thead", {}, make("tr", {}, make("th", { text: corner }), ...heads));
  const caption = make("caption", { text: title(chosen.value.value) });
  byId("sweep-table").querySelector(".table-box").replaceChildren(make("table", {}, caption, head, make("tbody", {}, ...rows)));
}

function wire() {
  if (wired) return;
  wired = true;
  for (const select of Object.values(chosen)) select.addEventListener("change", chose);
  box.addEventListener("keydown", key);
  byId("sweep-table").addEventListener("toggle", (event) => {
    if (event.target.open && diagram) table();
  });
}
