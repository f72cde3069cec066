// The state of the page, and a small event bus that reports its changes.

export const app = {
  start: null, // the answer of /api/start
  preset: null, // id of the chosen preset
  opened: null, // {name, words, config} of the stored run or cell that the settings were taken from
  config: null, // the settings of the controls
  refused: false, // whether a control has a value that cannot run
  changed: false, // whether the controls were changed since the last run was requested
  source: null, // null, or the stored run or cell that `current` was opened from
  runs: new Map(), // records of runs.js by id
  current: null, // the run that the buttons act on
  shown: null, // the run that is drawn: `current` as soon as it has points
  pinned: null, // run A of a comparison
  pinnedSource: null,
  index: 0, // the moment, as an index into the points of `shown`
  following: true, // whether the moment follows the end of a streaming run
  wantedTime: null, // a moment from the address that the run has not reached yet
  logTime: false,
  logLoss: false,
  wholeRun: true, // colours of heat maps: of the whole run, or of the moment
  zoom: null, // [low, high] of time, in axis units, where the reader zoomed in
  auto: true,
  playing: false, // whether time moves by itself
  sweep: null, // {id, x, y, value} of the diagram that is open
};

const listeners = new Map();

/** Calls `act` whenever one of the named parts changes. */
export function on(names, act) {
  for (const name of names.split(" ")) {
    if (!listeners.has(name)) listeners.set(name, []);
    listeners.get(name).push(act);
  }
}

/**
 * Says that something changed: config, refusals, run, points, theory, panels, moment, words, claims, scales, pin, theme;
 * "opened" comes with {name, words, config} of the stored run.
 */
export function emit(name, ...given) {
  for (const act of listeners.get(name) ?? []) act(...given);
}

export const byId = (id) => document.getElementById(id);

/** An element with attributes, properties (`text`, `on…`) and children. */
export function make(tag, options = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") made.textContent = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** The time that the slider stands at, or null. */
export function momentTime() {
  const run = app.shown;
  return run && run.times.length ? run.times[Math.min(app.index, run.times.length - 1)] : null;
}

/** The last index of `run` whose time is at most `time`. */
export function indexAt(run, time) {
  let low = 0;
  let high = run.times.length - 1;
  if (time === null || high < 0) return 0;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (run.times[middle] <= time * (1 + 1e-12)) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** Whether `run` has points up to `time`. */
export function reaches(run, time) {
  const last = run.times[run.times.length - 1];
  return time === null || last * (1 + 1e-12) >= time;
}

/** The index of `run` whose time is nearest to `time`. */
export function nearestIndex(run, time) {
  const below = indexAt(run, time);
  const above = Math.min(below + 1, run.times.length - 1);
  return Math.abs(run.times[above] - time) < Math.abs(run.times[below] - time) ? above : below;
}
