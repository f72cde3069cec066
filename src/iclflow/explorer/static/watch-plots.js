// The curves of a training in another process.
import { byId, make } from "./app.js";
import { DASHES, axis, hasPlotly, ink, layout, styleOf } from "./plots.js";
import { logRange, logTicks } from "./ticks.js";
import { number, percent } from "./text.js";
import { count, nearestNames, thin } from "./watch-record.js";
import { training, view } from "./watch-state.js";

const MOST = 7; // curves of distances
const [NEAREST, FARTHEST] = [-4, Math.log10(3)]; // beyond these nobody can tell, or nothing is alike
const margin = { l: 56, r: 14, t: 8, b: 40 };
const FULL = 0.03; // room on both sides
const plots = ["loss", "excess", "distances", "lengths"].map(byId);
const boxes = plots.map((plot) => plot.parentElement);

/** Whether steps are on a log axis: if nobody chose, where looks are spaced so. */
export function logStep() {
  const steps = view.record.numbers.step;
  return view.logStep ?? (steps.length > 5 && steps[steps.length - 1] > 100 * Math.max(steps[1], 1) && growing(steps));
}

function growing(steps) {
  const middle = steps[Math.floor(steps.length / 2)];
  return middle < 0.2 * steps[steps.length - 1];
}

function stepRange() {
  const steps = view.record.numbers.step;
  const last = steps[steps.length - 1] || 1;
  if (!logStep()) return [0, last * 1.01];
  const first = steps.find((step) => step > 0) ?? 1;
  const room = FULL * (Math.log10(last / first) || 1);
  return [Math.log10(first) - room, Math.log10(last) + room];
}

/** The share of the axis at which a step lies. */
function across(step, range = stepRange()) {
  const at = logStep() ? Math.log10(step) : step;
  return (at - range[0]) / (range[1] - range[0]);
}

function curve(column, range, wide, more = {}) {
  const steps = view.record.numbers.step;
  const kept = thin(column, (k) => across(steps[k], range), wide);
  const line = { width: 2, ...more.line };
  // A curve of few looks shows each of them.
  const mode = kept.length < 40 ? "lines+markers" : "lines";
  const y = kept.map((k) => (more.log && !(column[k] > 0) ? null : column[k]));
  return { x: kept.map((k) => steps[k]), y, mode, marker: { size: 5 }, hoverinfo: "skip", ...more.trace, line };
}

const linearRange = (lists) => {
  const values = lists.flat().filter(Number.isFinite);
  const high = values.reduce((a, b) => Math.max(a, b), 0);
  return [0, 1.05 * (high || 1)];
};

function draw(id, traces, yaxis, more = {}) {
  const box = byId(id).parentElement;
  const colours = ink();
  const log = logStep();
  const range = stepRange();
  const shown = layout(colours, {
    margin,
    width: box.clientWidth,
    height: box.clientHeight,
    dragmode: false,
    xaxis: axis(colours, {
      type: log ? "log" : "linear",
      range,
      fixedrange: true,
      ...(log ? logTicks(range, 5) : { nticks: 6 }),
      title: { text: "step", standoff: 4, font: { size: 12 } },
      ...more.xaxis,
    }),
    yaxis: axis(colours, { fixedrange: true, ...yaxis }),
    shapes: more.shapes ?? [],
    annotations: more.annotations ?? [],
  });
  window.Plotly.react(byId(id), traces, shown, { displayModeBar: false, doubleClick: false, responsive: false });
}

// A box without a size has not been laid out yet: `watchBoxes` draws it then.
const ready = () => hasPlotly() && count(view.record) > 0 && boxes.every((box) => box.clientWidth > 0);

function logAxis(lists) {
  const range = logRange(lists);
  return { type: "log", range, ...logTicks(range) };
}

/** A horizontal line with its name. */
function level(y, text, log, colours) {
  const line = { color: colours.reference, width: 1.5, dash: "dot" };
  const shape = { type: "line", xref: "paper", x0: 0, x1: 1, yref: "y", y0: y, y1: y, line };
  const font = { size: 11, color: colours.reference };
  // On the left: there the curve is still far above it.
  const where = { xref: "paper", x: 0.01, xanchor: "left", yref: "y", y: log ? Math.log10(y) : y, yanchor: "bottom" };
  return { shapes: [shape], annotations: [{ ...where, text, font, showarrow: false }] };
}

export function drawLoss() {
  if (!ready()) return;
  const colours = ink();
  const { loss } = view.record.numbers;
  const bayes = training()?.bayes_loss;
  const known = Number.isFinite(bayes) && (bayes > 0 || !view.logLoss);
  const wide = byId("loss").parentElement.clientWidth;
  const drawn = curve(loss, stepRange(), wide, { log: view.logLoss, line: { color: colours.b, width: 2.5 } });
  const lists = [drawn.y, known ? [bayes] : []];
  const yaxis = view.logLoss ? logAxis(lists) : { range: linearRange(lists) };
  draw("loss", [drawn], yaxis, known ? level(bayes, `Bayes ${number(bayes)}`, view.logLoss, colours) : {});
  const last = loss.length - 1;
  byId("loss").setAttribute("aria-label", `Loss against step: ${number(loss[0])} at first, ${number(loss[last])} at step ${view.record.numbers.step[last]}.`);
}

export function drawExcess() {
  if (!ready()) return;
  const colours = ink();
  const { excess } = view.record.numbers;
  const known = excess.some((value) => value !== null);
  byId("excess-title").textContent = known ? "Loss above Bayes, on a log scale" : "Loss above Bayes (Bayes is not known)";
  const wide = byId("excess").parentElement.clientWidth;
  const drawn = curve(excess, stepRange(), wide, { log: true, line: { color: colours.b, width: 2.5 } });
  draw("excess", [drawn], logAxis([drawn.y]));
}

export function drawDistances() {
  if (!ready()) return;
  const colours = ink();
  const names = nearestNames(view.record, view.label, MOST);
  // Estimators may coincide: dashes show the one below.
  const wide = byId("distances").parentElement.clientWidth;
  const range = [NEAREST, FARTHEST];
  const drawn = names.map((name, k) =>
    curve(view.record.distances[view.label].get(name), stepRange(), wide, { log: true, line: { ...styleOf(k, colours), dash: DASHES[k % 3] }, trace: { name } }),
  );
  const all = logRange(drawn.map((one) => one.y));
  const shown = [Math.max(range[0], Math.min(all[0], -1)), Math.min(range[1], all[1])];
  const yaxis = { type: "log", range: shown, ...logTicks(shown), title: { text: "relative distance", standoff: 2, font: { size: 12 } } };
  draw("distances", drawn, yaxis);
  legend(names);
}

/** The names of the curves, with the distances at the look of the slider. */
function legend(names) {
  const at = view.index ?? count(view.record) - 1;
  const keys = names.map((name, k) => {
    const value = view.record.distances[view.label].get(name)[at];
    return make("span", { class: "key" }, make("i", { class: `series s${(k % 7) + 1} ${k % 3 ? `dash${k % 3}` : ""}` }), name,
      make("b", { text: value === null || value === undefined ? "–" : percent(value) }));
  });
  byId("distance-legend").replaceChildren(...keys);
}

export function drawLengths() {
  const look = view.look;
  if (!ready() || !look) return;
  const colours = ink();
  const values = look.losses.map(([value]) => value);
  const errors = look.losses.map(([, error]) => error);
  const bar = { type: "data", array: errors, color: colours.b, thickness: 1, width: 2 };
  const common = { x: look.lengths, hoverinfo: "skip" };
  const model = { ...common, y: values, error_y: bar, mode: "lines+markers", marker: { size: 6 }, line: { color: colours.b, width: 2 } };
  const traces = [model];
  // The mean of the same sequences: what is left of the loss without its excess.
  const best = look.excesses ? values.map((value, k) => value - look.excesses[k][0]) : null;
  if (best) traces.push({ ...common, y: best, mode: "lines", line: { color: colours.reference, width: 2, dash: "dot" } });
  const longest = Math.max(1, ...look.lengths);
  const xaxis = { type: "linear", range: [-0.03 * longest, 1.03 * longest], tickmode: "auto", nticks: 8, title: { text: "context length", standoff: 4, font: { size: 12 } } };
  const lists = [values, best ?? []];
  draw("lengths", traces, view.logLoss ? logAxis(lists) : { range: linearRange(lists) }, { xaxis });
  const key = (kind, text) => make("span", { class: "key" }, make("i", { class: `swatch ${kind}` }), text);
  byId("lengths-legend").replaceChildren(key("b", `step ${look.step}`), ...(best ? [key("bayes", "loss − excess over Bayes")] : []));
}

export function drawCursor() {
  const step = view.index === null ? null : view.record.numbers.step[view.index];
  for (const box of boxes) {
    const line = box.querySelector(".cursor");
    if (!line) continue;
    const share = step === null || step === undefined ? -1 : across(step);
    line.hidden = !(share >= 0 && share <= 1);
    if (line.hidden) continue;
    line.style.transform = `translateX(${margin.l + share * (box.clientWidth - margin.l - margin.r)}px)`;
    line.style.top = `${margin.t}px`;
    line.style.bottom = `${margin.b}px`;
  }
}

/** Calls `act` whenever a plot has another size than before, and when it gets its first one. */
export function watchBoxes(act) {
  const observer = new ResizeObserver(act);
  for (const box of boxes) observer.observe(box);
}

/** Without looks, says so, and removes what was drawn of another training. */
export function drawEmpty() {
  const empty = count(view.record) === 0;
  for (const box of boxes) box.querySelector(".empty").hidden = !empty;
  if (!empty) return;
  if (hasPlotly()) for (const plot of plots) window.Plotly.purge(plot);
  for (const id of ["distance-legend", "lengths-legend"]) byId(id).replaceChildren();
}

/** Calls `act` with the look that is nearest to a press on a plot. */
export function pickLooks(act) {
  for (const box of boxes.slice(0, 3)) {
    box.addEventListener("click", (event) => {
      const steps = view.record.numbers.step;
      if (!steps.length) return;
      const frame = box.getBoundingClientRect();
      const share = (event.clientX - frame.left - margin.l) / (frame.width - margin.l - margin.r);
      if (share < 0 || share > 1) return;
      let best = 0;
      const range = stepRange();
      for (let k = 0; k < steps.length; k++) {
        if (Math.abs(across(steps[k], range) - share) < Math.abs(across(steps[best], range) - share)) best = k;
      }
      act(best);
    });
  }
}
