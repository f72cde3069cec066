// The loss as it is computed, with theory on top.
import { app, byId, indexAt, make, momentTime, reaches } from "./app.js";
import { differences } from "./compare.js";
import { axis, chooseMoment, hasPlotly, ink, layout, placeCursor, placed, timeAt, timeAxis } from "./plots.js";
import { labels } from "./labels.js";
import { LIVE } from "./runs.js";
import { number } from "./text.js";
import { logTicks } from "./ticks.js";

const plot = byId("loss");
const box = plot.parentElement;
let made = false;
let revision = 0;
let shownRange = [0, 1]; // of the loss axis, in axis units

/** Margins: the right one holds the names of levels and references. */
export function margins() {
  return box.clientWidth < 520 ? { l: 48, r: 98, t: 8, b: 42 } : { l: 58, r: 168, t: 8, b: 42 };
}

/** Horizontal lines of a run: plateaus, references, the smallest loss; each {y, text, kind}. */
export function lines(run) {
  const theory = run?.theory;
  if (!theory) return [];
  const found = (theory.levels ?? []).map((y) => ({ y, text: `plateau ${number(y)}`, kind: "level" }));
  for (const [name, y] of theory.references ?? []) found.push({ y, text: `${name} ${number(y)}`, kind: "reference" });
  if (Number.isFinite(theory.floor)) found.push({ y: theory.floor, text: `smallest ${number(theory.floor)}`, kind: "floor" });
  return found.filter((line) => Number.isFinite(line.y));
}

/** The losses that theory expects of a run without points. */
const expected = ({ theory }) => theory?.curve?.losses ?? theory?.levels ?? [];

/** The loss axis: all curves, and the lines of theory that do not lie far above them. */
function lossRange(runs) {
  let low = Infinity;
  let high = -Infinity;
  const see = (value) => {
    if (!Number.isFinite(value) || (app.logLoss && value <= 0)) return;
    low = Math.min(low, value);
    high = Math.max(high, value);
  };
  for (const run of runs) for (const value of run.losses.length ? run.losses : expected(run)) see(value);
  const top = high;
  for (const run of runs) for (const line of lines(run)) if (line.y <= 1.1 * top) see(line.y);
  if (!Number.isFinite(low)) return app.logLoss ? [-2, 0] : [0, 1];
  if (!app.logLoss) {
    const pad = 0.06 * (high - low || high || 1);
    return [low - pad, high + pad];
  }
  low = Math.log10(Math.max(low, high * 1e-10));
  const pad = 0.06 * (Math.log10(high) - low || 1);
  return [low - pad, Math.log10(high) + pad];
}

function curves(run, colour, name, colours) {
  const drawn = [];
  const curve = run.theory?.curve;
  // Also without points: the first curve is that of the run.
  drawn.push({ ...placed(run.times, run.losses, app.logLoss), mode: "lines", name, line: { color: colour, width: 3.5 }, hoverinfo: "skip" });
  if (curve) {
    const line = { color: colours.theory, width: 1.8, dash: name === "A" ? "dot" : "dash" };
    drawn.push({ ...placed(curve.times, curve.losses, app.logLoss), mode: "lines", name: "theory", line, hoverinfo: "skip" });
  }
  return drawn;
}

function shapes(run, compared, colours) {
  const drawn = [];
  const style = {
    level: { color: compared ? colours.a : colours.level, width: 1 },
    reference: { color: colours.reference, width: 1.2, dash: "dot" },
    floor: { color: colours.text, width: 1, dash: "longdashdot" },
  };
  for (const { y, kind } of lines(run)) {
    if (compared && kind === "reference") continue; // those of B are enough where tasks are alike
    if (app.logLoss && y <= 0) continue;
    drawn.push({ type: "line", xref: "paper", x0: 0, x1: 1, yref: "y", y0: y, y1: y, line: style[kind], layer: "below" });
  }
  for (const time of run?.theory?.drop_times ?? []) {
    if (!Number.isFinite(time) || (app.logTime && time <= 0)) continue;
    const base = { type: "line", xref: "x", x0: time, x1: time, yref: "paper" };
    const colour = compared ? colours.a : colours.theory;
    drawn.push({ ...base, y0: 0, y1: 0.07, line: { color: colour, width: 2 } });
    drawn.push({ ...base, y0: 0.07, y1: 1, line: { color: colours.level, width: 0.7, dash: "dot" }, layer: "below" });
  }
  return drawn;
}

/** The run to draw: without one that has points, the current one as soon as its theory is known. */
function drawnRun() {
  const { shown, current } = app;
  return shown ?? (current?.theory?.curve || current?.theory?.levels?.length ? current : null);
}

/** Before there is anything to draw: the picture that the preset has in the list, if nothing was changed. */
function drawEmpty(run) {
  byId("loss-empty").hidden = Boolean(run);
  if (run) return;
  const preset = app.start?.presets.find((one) => one.id === app.preset);
  const known = Boolean(preset) && !differences(preset.config, app.config).length;
  const picture = byId("loss-picture");
  if (known && picture.getAttribute("src") !== preset.picture) picture.src = preset.picture;
  picture.hidden = !known;
  const before = known ? "A stored picture of this preset. " : "";
  const under = LIVE.has(app.current?.status);
  byId("loss-empty-words").textContent = under ? `${before}The curve of this run follows.` : "Choose a preset, or press Run.";
}

export function drawLoss() {
  const run = drawnRun();
  drawEmpty(run);
  if (!hasPlotly() || !run) return;
  const colours = ink();
  const other = app.pinned && app.pinned !== run && app.pinned.times.length ? app.pinned : null;
  const runs = other ? [other, run] : [run];
  const range = lossRange(runs);
  shownRange = range;
  const margin = margins();
  const traces = [...(other ? curves(other, colours.a, "A", colours) : []), ...curves(run, colours.b, other ? "B" : "simulated", colours)];
  const narrow = box.clientWidth < 520;
  const shown = layout(colours, {
    margin,
    width: box.clientWidth,
    height: box.clientHeight,
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    xaxis: timeAxis(colours, narrow ? 4 : 8, { title: { text: run.clock === "step" ? "step" : "time", standoff: 6, font: { size: 12 } } }),
    yaxis: axis(colours, {
      type: app.logLoss ? "log" : "linear",
      range,
      fixedrange: true,
      title: narrow ? undefined : { text: "loss", standoff: 4, font: { size: 12 } },
      ...(app.logLoss ? logTicks(range) : {}),
    }),
    datarevision: ++revision, // points are appended to the same arrays
    shapes: [...(other ? shapes(other, true, colours) : []), ...shapes(run, false, colours)],
    annotations: labels(lines(run), range, box.clientHeight - margin.t - margin.b, app.logLoss, colours, narrow),
  });
  window.Plotly.react(plot, traces, shown, { displayModeBar: false, doubleClick: false, responsive: false });
  if (!made) watchZoom();
  made = true;
  plot.setAttribute("aria-label", summary(run));
  legend(run, other);
  byId("theory-source").textContent = run.theory?.source ? `Theory: ${run.theory.source}` : "";
  if (!run.drawn && run.times.length > 1) {
    run.drawn = true;
    performance.mark("first-curve", { detail: run.id });
  }
  drawCursor();
}

export function drawCursor() {
  placeCursor(box, margins(), momentTime());
}

function summary(run) {
  if (!run.times.length) return "What theory expects of the loss; the run has no points yet.";
  const last = run.times.length - 1;
  return `Loss against ${run.clock}: ${number(run.losses[0])} at the start, ${number(run.losses[last])} at ${number(run.times[last])}.`;
}

function legend(run, other) {
  const key = (kind, text) => make("span", { class: "key" }, make("i", { class: `swatch ${kind}` }), text);
  const keys = other ? [key("a", "A, pinned"), key("b", "B")] : run.times.length ? [key("b", "simulated")] : [];
  if (run.theory?.curve) keys.push(key("theory", "theory"));
  if (run.theory?.levels?.length) keys.push(key("level", "plateau of theory"));
  if (run.theory?.drop_times?.length) keys.push(key("drop", "predicted drop"));
  if (run.theory?.references?.length) keys.push(key("reference", "estimator"));
  const text = keys.map((one) => one.textContent).join();
  const place = byId("loss-legend");
  if (place.dataset.keys !== text) {
    place.dataset.keys = text;
    place.replaceChildren(...keys);
  }
}

/** The loss of a curve {times, losses} at a time, between two points; null outside of it. */
function lossAt(curve, time) {
  const { times, losses } = curve;
  if (!times?.length || time < times[0] || !reaches(curve, time)) return null;
  const below = indexAt(curve, time);
  const above = Math.min(below + 1, times.length - 1);
  const share = above > below ? (time - times[below]) / (times[above] - times[below]) : 0;
  return losses[below] + share * (losses[above] - losses[below]);
}

/** What stands under the mouse: the time and the loss of each curve there; in the margin, the nearest line in full. */
function valuesAt(share, height) {
  const run = drawnRun();
  const named = (name, value) => (value === null ? null : [name, number(value, 4)]);
  if (share > 1) {
    const near = lines(run).map((line) => ({ line, off: Math.abs(line.y - lossOf(height)) }));
    near.sort((a, b) => a.off - b.off);
    return near.length ? [[near[0].line.text, ""]] : [];
  }
  const time = timeAt(share);
  const other = app.pinned && app.pinned !== run && app.pinned.times.length ? app.pinned : null;
  const found = [[run.clock === "step" ? "step" : "time", number(time, 4)]];
  if (other) found.push(named("A", lossAt(other, time)));
  found.push(named(other ? "B" : "loss", lossAt(run, time)));
  if (run.theory?.curve) found.push(named("theory", lossAt(run.theory.curve, time)));
  return found.filter(Boolean);
}

/** The loss at a share of the height, from the top. */
function lossOf(share) {
  const at = shownRange[1] + share * (shownRange[0] - shownRange[1]);
  return app.logLoss ? 10 ** at : at;
}

function wireValues() {
  const note = box.querySelector(".under");
  const mark = box.querySelector(".pointed");
  const hide = () => (note.hidden = mark.hidden = true);
  box.addEventListener("pointermove", (event) => {
    const run = drawnRun();
    if (!run || !made || event.buttons) return hide();
    const margin = margins();
    const frame = box.getBoundingClientRect();
    const wide = frame.width - margin.l - margin.r;
    const [x, y] = [event.clientX - frame.left, event.clientY - frame.top];
    const share = (x - margin.l) / wide;
    const height = (y - margin.t) / (frame.height - margin.t - margin.b);
    const found = share < 0 || height < 0 || height > 1 ? [] : valuesAt(share, height);
    if (!found.length) return hide();
    const texts = found.flatMap(([name, value], k) => [k ? ", " : "", value ? `${name} ` : name, make("b", { text: value })]);
    note.replaceChildren(...texts);
    note.hidden = false;
    mark.hidden = share > 1;
    mark.style.transform = `translateX(${x}px)`;
    mark.style.top = `${margin.t}px`;
    mark.style.bottom = `${margin.b}px`;
    // Beside the mouse, on the side where there is room.
    const left = Math.min(Math.max(x + 12 + note.offsetWidth > frame.width ? x - note.offsetWidth - 12 : x + 12, 0), frame.width - note.offsetWidth);
    note.style.transform = `translate(${left}px, ${Math.max(y - note.offsetHeight - 8, 2)}px)`;
  });
  box.addEventListener("pointerleave", hide);
}
wireValues();

let zoomed = () => {};
export const onZoom = (act) => {
  zoomed = act;
};

function watchZoom() {
  plot.on("plotly_relayout", (change) => {
    if ("xaxis.range[0]" in change) {
      app.zoom = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
      zoomed();
    }
  });
  plot.on("plotly_doubleclick", () => {
    app.zoom = null;
    zoomed();
  });
}

export function pickMoments(act) {
  chooseMoment(box, margins, act);
}
