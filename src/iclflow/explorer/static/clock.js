// The time slider: one moment for every panel, and play.
import { app, byId, emit, nearestIndex } from "./app.js";
import { number } from "./text.js";

const slider = byId("clock");
const text = byId("clock-text");
const play = byId("play");
const speed = byId("speed");
const WHOLE = 8000; // ms that a whole run takes at speed 1
let playing = false;
let began = 0;
let from = 0;

/** Syncs the slider with the points of the run. */
export function syncClock() {
  const run = app.shown;
  const count = run?.times.length ?? 0;
  slider.disabled = count < 2;
  play.disabled = count < 2;
  slider.max = String(Math.max(count - 1, 0));
  if (!count) {
    text.textContent = "no points yet";
    return;
  }
  if (app.wantedTime !== null) {
    const over = !["queued", "running", "paused"].includes(run.status);
    app.index = nearestIndex(run, app.wantedTime);
    app.following = false;
    if (over || run.times[count - 1] >= app.wantedTime) app.wantedTime = null;
  } else if (app.following) app.index = count - 1;
  app.index = Math.min(app.index, count - 1);
  slider.value = String(app.index);
  const unit = run.clock === "step" ? "step" : "time";
  const shown = `${unit} ${number(run.times[app.index])}, loss ${number(run.losses[app.index])}`;
  text.textContent = shown;
  slider.setAttribute("aria-valuetext", `${shown}, point ${app.index + 1} of ${count}`);
}

/** Goes to a moment by index. */
export function goTo(index) {
  const run = app.shown;
  if (!run?.times.length) return;
  const last = run.times.length - 1;
  app.wantedTime = null;
  app.index = Math.min(Math.max(Math.round(index), 0), last);
  app.following = app.index === last;
  emit("moment");
}

export function goToTime(time) {
  if (!app.shown?.times.length) return;
  stop();
  goTo(nearestIndex(app.shown, time));
}

function frame(now) {
  if (!playing) return;
  const run = app.shown;
  const last = (run?.times.length ?? 1) - 1;
  const reached = from + ((now - began) / WHOLE) * Number(speed.value) * last;
  if (Math.floor(reached) !== app.index) goTo(Math.floor(reached));
  if (reached >= last) stop();
  else requestAnimationFrame(frame);
}

function stop() {
  if (!playing) return;
  playing = false;
  app.playing = false;
  play.textContent = "Play";
  play.setAttribute("aria-pressed", "false");
  emit("moment");
}

/** Plays from the moment, from the start if it stands at the end; stops if it plays. */
export function togglePlay() {
  if (playing) return stop();
  const run = app.shown;
  if (!run || run.times.length < 2) return;
  from = app.index >= run.times.length - 1 ? 0 : app.index;
  began = performance.now();
  playing = true;
  app.playing = true;
  play.textContent = "Stop";
  play.setAttribute("aria-pressed", "true");
  goTo(from);
  requestAnimationFrame(frame);
}

export function wireClock() {
  slider.addEventListener("input", () => {
    stop();
    goTo(Number(slider.value));
  });
  play.addEventListener("click", togglePlay);
  speed.addEventListener("change", () => {
    from = app.index;
    began = performance.now();
  });
}
