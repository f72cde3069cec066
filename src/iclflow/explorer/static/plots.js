// Plotly: loading it under a strict content policy, and what all plots share.
import { app, emit, make } from "./app.js";
import { logTicks } from "./ticks.js";

let loading = null;
let warmed = false;

/** Loads Plotly once, beside everything else: the page can be used before it is there. */
export function loadPlotly(version = "") {
  loading ??= new Promise((ready, fail) => {
    const create = document.createElement;
    // While it is read, the bundle adds style elements for its maps, which are not used here and which the content
    // policy forbids. It gets elements that do nothing instead.
    document.createElement = function (name, ...rest) {
      return create.call(document, String(name).toLowerCase() === "style" ? "template" : name, ...rest);
    };
    const finish = (then) => () => {
      document.createElement = create;
      then(window.Plotly);
    };
    const script = make("script", { src: `/static/plotly.min.js${version ? `?v=${version}` : ""}` });
    script.addEventListener("load", finish((plotly) => ready(warm(plotly))));
    script.addEventListener("error", finish(() => fail(new Error("Plotly could not be loaded."))));
    document.head.append(script);
  });
  return loading;
}

/** Draws a plot that nobody sees: the first one is slow, and must not be that of a run that streams. */
async function warm(plotly) {
  const scratch = make("div");
  const line = { type: "line", x0: 0, x1: 1, y0: 0, y1: 1 };
  const look = { width: 200, height: 150, shapes: [line], annotations: [{ x: 0, y: 0, text: "0" }] };
  await plotly.newPlot(scratch, [{ x: [0, 1], y: [0, 1], mode: "lines" }], look);
  plotly.purge(scratch);
  warmed = true;
  return plotly;
}

export const hasPlotly = () => warmed;

/** The colours of the theme, from the style sheet. */
export function ink() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    text: read("text"),
    quiet: read("quiet"),
    line: read("line"),
    ground: read("block"),
    grid: read("grid"),
    a: read("run-a"),
    b: read("run-b"),
    theory: read("theory"),
    reference: read("reference"),
    level: read("level"),
    series: ["s1", "s2", "s3", "s4", "s5", "s6", "s7"].map(read),
  };
}

export const DASHES = ["solid", "dash", "dot", "dashdot"];

/** Colour and dash of series number `k`: after seven colours the dashes change. */
export function styleOf(k, colours) {
  return { color: colours.series[k % 7], dash: DASHES[Math.floor(k / 7) % DASHES.length] };
}

export function axis(colours, more = {}) {
  return {
    gridcolor: colours.grid,
    linecolor: colours.line,
    tickcolor: colours.line,
    zeroline: false,
    showline: true,
    ticks: "outside",
    ticklen: 4,
    tickfont: { size: 11, color: colours.text },
    automargin: false,
    tickformat: "~g", // Plotly's own powers of ten would set style attributes
    fixedrange: false,
    ...more,
  };
}

export function layout(colours, more = {}) {
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 12, color: colours.text },
    showlegend: false,
    hovermode: false,
    ...more,
  };
}

/** The time axis of every plot: [low, high] in axis units (powers of ten on a log axis). */
export function timeRange() {
  if (app.zoom) return app.zoom;
  const runs = [app.shown, app.pinned].filter((run) => run && run.times.length);
  let last = 0;
  let first = Infinity;
  if (!runs.length && app.current?.theory) {
    const { curve, drop_times: drops } = app.current.theory;
    last = curve ? curve.times[curve.times.length - 1] : 1.4 * Math.max(0, ...(drops ?? []).filter(Number.isFinite));
    first = curve?.times.find((time) => time > 0) ?? last / 1e4;
  }
  for (const run of runs) {
    last = Math.max(last, run.times[run.times.length - 1]);
    // While a run streams, its axis already reaches to where theory expects the last drop.
    if (run.status === "running" || run.status === "paused") {
      const drops = (run.theory?.drop_times ?? []).filter(Number.isFinite);
      if (drops.length) last = Math.max(last, 1.15 * Math.max(...drops));
    }
    const positive = run.times.find((time) => time > 0);
    if (positive) first = Math.min(first, positive);
  }
  if (last <= 0) return app.logTime ? [-1, 1] : [0, 1];
  if (!app.logTime) return [0, last * 1.01];
  const low = Math.max(Math.log10(Math.min(first, last / 2)), Math.log10(last) - 7);
  return [low, Math.log10(last * 1.02)];
}

/** Where a time lies on the axis, from 0 (left) to 1 (right); outside of it below 0 or above 1. */
export function across(time, range = timeRange()) {
  if (app.logTime && time <= 0) return -1;
  const at = app.logTime ? Math.log10(time) : time;
  return (at - range[0]) / (range[1] - range[0]);
}

/** The time at a share of the axis. */
export function timeAt(share, range = timeRange()) {
  const at = range[0] + share * (range[1] - range[0]);
  return app.logTime ? 10 ** at : at;
}

/**
 * The points {x, y} of a curve that have a place on the axes. What has no logarithm is left out of a log axis:
 * Plotly would draw the line on, flat, from the next point to the edge of the plot.
 */
export function placed(times, values, logValues = false) {
  let first = 0;
  while (app.logTime && first < times.length && !(times[first] > 0)) first++;
  const x = first ? times.slice(first) : times;
  const y = first ? values.slice(first) : values;
  return { x, y: logValues ? y.map((value) => (value > 0 ? value : null)) : y };
}

/** The time axis of a plot, the same for all of them. */
export function timeAxis(colours, most, more = {}) {
  const range = timeRange();
  const ticks = app.logTime ? logTicks(range, most) : { nticks: most };
  return axis(colours, { type: app.logTime ? "log" : "linear", range, ...ticks, ...more });
}

/** Moves the cursor line of a plot box whose plot has these margins. */
export function placeCursor(box, margin, time, wide = box.clientWidth) {
  const line = box.querySelector(".cursor");
  const share = time === null ? -1 : across(time);
  line.hidden = share < 0 || share > 1;
  if (!line.hidden) {
    const width = wide - margin.l - margin.r;
    line.style.transform = `translateX(${margin.l + share * width}px)`;
    line.style.top = `${margin.t}px`;
    line.style.bottom = `${margin.b}px`;
  }
}

/** Lets a press on the plot choose the moment. */
export function chooseMoment(box, marginOf, act) {
  let pressed = 0;
  box.addEventListener("pointerdown", (event) => {
    pressed = event.clientX;
  }, true);
  box.addEventListener("click", (event) => {
    if (Math.abs(event.clientX - pressed) > 4) return; // that was a drag, which zooms
    const margin = marginOf();
    const frame = box.getBoundingClientRect();
    const share = (event.clientX - frame.left - margin.l) / (frame.width - margin.l - margin.r);
    if (share >= 0 && share <= 1) act(timeAt(share));
  });
}

/** Redraws when the width of the page changes. */
export function watchSize() {
  let wait = null;
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return; // a phone's address bar changes the height alone
    width = window.innerWidth;
    clearTimeout(wait);
    wait = setTimeout(() => emit("size"), 150);
  });
}
