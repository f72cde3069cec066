// The status of the run in words, and the buttons that apply.
import { app, byId } from "./app.js";
import { showError } from "./notes.js";
import { LIVE } from "./runs.js";
import { number, plural, seconds } from "./text.js";

const spoken = byId("status-words"); // read aloud
const numbers = byId("status-numbers"); // only seen
const COMPILING =
  "Compiling. The first run of each kind takes a few seconds, on sampled softmax batches half a minute.";

function progress(run) {
  const { loss, steps, seconds: spent } = run.progress ?? {};
  const parts = [];
  if (Number.isFinite(loss)) parts.push(`loss ${number(loss)}`);
  if (Number.isFinite(steps)) parts.push(`${steps} steps`);
  if (Number.isFinite(spent)) parts.push(seconds(spent));
  return parts.length ? `: ${parts.join(", ")}.` : ".";
}

/** What the run does: the words that are read aloud, and the numbers that follow them. */
function words(run) {
  switch (run.status) {
    case "queued":
      if (run.why) return [run.why];
      if (run.started) return ["Resumes as soon as a worker is free."];
      return run.place > 0 ? ["Waiting", `: ${plural(run.place, "run")} before this one.`] : ["Starting."];
    case "running":
      if (!run.times.length) return [COMPILING];
      return ["Running", progress(run)];
    case "paused":
      return [`Paused${progress(run)} Continue resumes it.`];
    case "ended":
    case "settled": {
      const time = run.seconds === null ? "" : ` after ${seconds(run.seconds)}`;
      const what = run.result ? run.result.replaceAll("_", " ") : "done";
      const more = run.message ? ` ${run.message}` : "";
      return [`Ended${time}: ${what}, ${plural(run.times.length, "point")}.${more}`];
    }
    case "cancelled":
      // The server's own sentence may begin with the same word.
      return [/^Cancelled/.test(run.message) ? run.message : `Cancelled. ${run.message}`];
    case "failed":
      return ["Failed."];
    default:
      return [""];
  }
}

/** Why the page shows other settings than the controls, or "" where it does not. */
function outdated() {
  if (!app.shown) return "";
  if (app.refused) return "These settings cannot run. The page shows the previous settings.";
  return app.changed && !app.auto ? "The settings were changed. The page shows the previous settings until you press Run." : "";
}

/** Marks the curve, the words and the verdicts as those of other settings, or removes the marks. */
function markOutdated(now) {
  document.body.classList.toggle("outdated", now);
  for (const mark of document.querySelectorAll(".of-before")) mark.hidden = !now;
  for (const mark of document.querySelectorAll(".of-now")) mark.hidden = now;
  for (const id of ["loss", "words", "claims"]) {
    if (now) byId(id).setAttribute("aria-describedby", "status-words");
    else byId(id).removeAttribute("aria-describedby");
  }
}

export function drawStatus() {
  const run = app.current;
  const state = run?.status ?? "empty";
  document.documentElement.dataset.state = state;
  const why = outdated();
  markOutdated(Boolean(why));
  const described = run ? words(run) : ["No run yet."];
  const [text, more = ""] = why ? [why, LIVE.has(state) ? ` ${described.join("")}` : ""] : described;
  if (spoken.textContent !== text) spoken.textContent = text;
  if (numbers.textContent !== more) numbers.textContent = more;
  const live = LIVE.has(state);
  byId("pause").disabled = state !== "running" && state !== "queued";
  byId("continue").disabled = state !== "paused";
  byId("cancel").disabled = !live;
  byId("pin").disabled = !run?.times.length || run === app.pinned;
  showError("run", state === "failed" ? run.message : "");
  const fraction = run?.progress?.fraction;
  const bar = byId("progress");
  bar.classList.toggle("busy", state === "queued" || (state === "running" && !Number.isFinite(fraction)));
  const share = live ? (Number.isFinite(fraction) ? fraction : 0) : state === "empty" ? 0 : 1;
  bar.firstElementChild.style.transform = `scaleX(${share})`;
  const stale = Boolean(app.shown && run && app.shown !== run);
  byId("centre").classList.toggle("stale", stale);
  byId("words").classList.toggle("stale", stale);
  exportsOf(run);
}

function exportsOf(run) {
  for (const link of document.querySelectorAll("#exports a")) {
    if (run?.times.length) {
      const address = `/api/runs/${encodeURIComponent(run.id)}/export/${link.dataset.format}`;
      if (link.getAttribute("href") !== address) link.setAttribute("href", address);
      link.setAttribute("download", "");
      link.removeAttribute("aria-disabled");
    } else {
      link.removeAttribute("href");
      link.setAttribute("aria-disabled", "true");
    }
  }
}
