// The record of a run, and how events change it. Nothing here touches the page.

export const LIVE = new Set(["queued", "running", "paused"]);

export function newRun(id) {
  return {
    id,
    status: "queued",
    place: 0,
    why: "", // why no run is started, if that is so
    config: null,
    title: "",
    stored: null,
    started: false,
    theory: null,
    clock: "time",
    panels: [],
    heads: [],
    matrices: [],
    times: [],
    losses: [],
    lines: {},
    roles: [],
    words: [],
    claims: [],
    claimsKnown: false, // whether the server has sent the list of claims
    claimsFinal: false,
    progress: null,
    message: "",
    result: "",
    seconds: null,
    drawn: false, // whether its first points have been on screen
    withoutWeights: false, // whether the server no longer has them
    complete: false, // whether it was on screen after its end
  };
}

function cut(list, from, more) {
  if (list.length > from) list.length = from;
  for (const item of more) list.push(item);
}

function addPoints(run, event) {
  cut(run.times, event.from, event.times);
  cut(run.losses, event.from, event.losses);
  for (const [id, values] of Object.entries(event.lines ?? {})) {
    run.lines[id] ??= [];
    cut(run.lines[id], event.from, values);
  }
  if (event.roles) cut(run.roles, event.from, event.roles);
}

const changes = {
  queued(run, event) {
    run.status = "queued";
    run.place = event.place ?? 0;
    run.why = event.why ?? "";
    if (event.config) run.config = event.config;
    run.title = event.title ?? run.title;
    if ("stored" in event) run.stored = event.stored; // only in the first event
    return "status";
  },
  started(run) {
    run.status = "running";
    run.started = true;
    return "status";
  },
  theory(run, event) {
    run.theory = event;
    return "theory";
  },
  panels(run, event) {
    run.clock = event.clock ?? "time";
    run.panels = event.panels ?? [];
    run.heads = event.heads ?? [];
    run.matrices = event.matrices ?? [];
    return "panels";
  },
  points(run, event) {
    addPoints(run, event);
    return "points";
  },
  progress(run, event) {
    run.progress = event;
    return "progress";
  },
  words(run, event) {
    cut(run.words, event.from ?? 0, event.moments);
    return "words";
  },
  claims(run, event) {
    run.claims = event.claims;
    run.claimsKnown = true;
    run.claimsFinal = event.final;
    return "claims";
  },
  paused(run) {
    run.status = "paused";
    return "status";
  },
  resumed(run) {
    run.status = "running";
    return "status";
  },
  ended(run, event) {
    run.status = "ended";
    run.result = event.result;
    run.message = event.message ?? "";
    run.seconds = event.seconds ?? null;
    return "status";
  },
  settled(run) {
    // A run that failed or was cancelled is still that after its last event.
    if (run.status === "ended") run.status = "settled";
    run.over = true;
    return "status";
  },
  cancelled(run, event) {
    run.status = "cancelled";
    run.message = event.message ?? "";
    return "status";
  },
  failed(run, event) {
    run.status = "failed";
    run.message = event.message ?? "The run failed.";
    return "status";
  },
};

/** Changes `run` as `event` says and names what changed, or null for an unknown event. */
export function apply(run, event) {
  return changes[event.type]?.(run, event) ?? null;
}

/** Whether the server has no more events for this run. */
export function isOver(run) {
  return run.over || ["settled", "cancelled", "failed"].includes(run.status);
}

/** The last moment at or before `time` that has words, or null: {time, sentences}. */
export function wordsAt(run, time) {
  let found = null;
  for (const moment of run.words) {
    if (time !== null && moment.time > time * (1 + 1e-12)) break;
    found = moment;
  }
  return found;
}
