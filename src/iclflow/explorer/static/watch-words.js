// A training in words: what it does, what it is, what went wrong, and its numbers at one look.
import { byId, make } from "./app.js";
import { number, plural, percent } from "./text.js";
import { count } from "./watch-record.js";
import { markVerdict } from "./verdicts.js";
import { training, view } from "./watch-state.js";

const NAMES = { waiting: "waiting", running: "running", silent: "silent", ended: "ended", gone: "no record" };

/** Sets a text only if it is another one: it may be read aloud. */
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const passed = (seconds) => (seconds < 100 ? `${seconds} s` : seconds < 6000 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`);

export function drawStatus() {
  const one = training();
  if (!one) return;
  document.documentElement.dataset.state = one.state;
  byId("status").dataset.state = one.state;
  setText(byId("name"), one.name);
  setText(byId("status-words"), view.record.damage ?? one.words);
  const parts = [plural(one.looks, "look")];
  if (one.step !== null) parts.push(one.steps ? `step ${one.step} of ${one.steps}` : `step ${one.step}`);
  if (one.age !== null && one.looks) parts.push(`the last ${passed(one.age)} ago`);
  if (one.schedule) parts.push(`planned: ${one.schedule}`);
  setText(byId("status-numbers"), `${parts.join(", ")}.`);
  setText(byId("lead"), one.task ? `A training on ${one.task}, as it is measured.` : "A training in another process, as it is measured.");
}

/** The trainings to choose from, if there are several. */
export function drawTrainings(choose) {
  const list = byId("trainings");
  list.hidden = view.trainings.length < 2;
  const text = JSON.stringify(view.trainings.map(({ id, name, state, step }) => [id, name, state, step, id === view.chosen]));
  if (list.dataset.text === text) return;
  const held = document.activeElement?.dataset?.training; // what has the focus keeps it
  list.dataset.text = text;
  list.replaceChildren(
    ...view.trainings.map((one) =>
      make("li", {}, make("button", { type: "button", "data-training": one.id, "aria-pressed": String(one.id === view.chosen), onclick: () => choose(one.id) },
        one.name, make("span", { class: "state", text: ` ${NAMES[one.state]}${one.step === null ? "" : `, step ${one.step}`}` }))),
    ),
  );
  if (held) list.querySelector(`[data-training="${held}"]`)?.focus();
}

export function drawWords() {
  const place = byId("words");
  const sentences = [...(view.record.labels[view.label] ?? [])];
  if (count(view.record) && view.record.plateaus) sentences.push(view.record.plateaus);
  if (!sentences.length) sentences.push("Descriptions appear with the first look.");
  // The estimator is what one asks for: it comes first.
  if (sentences.length > 1 && count(view.record)) sentences.unshift(...sentences.splice(1, 1));
  const text = sentences.join("\n");
  if (place.dataset.text === text) return;
  place.dataset.text = text;
  place.replaceChildren(...sentences.map((words, k) => make("p", { class: k ? null : "first", text: words })));
}

export function drawProblems() {
  const { problems } = view.record;
  byId("problems-block").hidden = !problems.length;
  // The same problem at many looks is one line.
  const groups = new Map();
  for (const [step, words] of problems) groups.set(words, [...(groups.get(words) ?? []), step]);
  const lines = [...groups].map(([words, steps]) => {
    const where = steps.length > 1 ? `Steps ${steps[0]} to ${steps[steps.length - 1]} (${steps.length} looks)` : `Step ${steps[0]}`;
    return make("li", { text: `${where}: ${words}` });
  });
  byId("problems").replaceChildren(...lines);
}

/** What the claims say of the training, where they are checked. */
export function drawVerdicts() {
  const { step, claims, others } = view.record.verdicts;
  byId("verdicts-block").hidden = step === null;
  if (step === null) return;
  setText(byId("verdicts-step"), `Checked on the looks up to step ${step}. ${plural(others, "claim")} on other trainings.`);
  const lines = claims.map((claim) => {
    const line = make("li", { class: "claim" }, make("span", { class: "verdict" }), " ", make("code", { text: claim.id }), make("span", { class: "statement", text: claim.statement }));
    if (claim.reason) line.append(make("span", { class: "quiet", text: claim.reason }));
    markVerdict(line, claim.verdict);
    return line;
  });
  byId("verdicts").replaceChildren(...lines);
}

/** Rows of cells under a head. */
function table(head, rows) {
  const row = (cells, tag) => make("tr", {}, ...cells.map((text) => make(tag, { text })));
  return make("table", {}, make("thead", {}, row(head, "th")), make("tbody", {}, ...rows.map((cells) => row(cells, "td"))));
}

/** What was measured at the look of the slider. */
export function drawLook() {
  const look = view.look;
  if (!look) {
    for (const id of ["table", "table-step"]) byId(id).replaceChildren();
    drawHeads({});
    return;
  }
  setText(byId("table-step"), `step ${look.step}`);
  const rows = (look.distances[view.label] ?? []).map((one) => [one.name, percent(one.distance), one.step_size === null ? "" : number(one.step_size)]);
  byId("table").replaceChildren(table(["estimator", "distance", "step size"], rows));
  drawHeads(look);
}

/** The roles of heads, where weights are read. */
function drawHeads(look) {
  const layers = look.layers ?? [];
  byId("heads-block").hidden = !layers.length;
  const rows = layers.flatMap(({ name, roles }) => roles.map((role, k) => [`${layers.length > 1 ? `${name}, ` : ""}head ${k + 1}`, role]));
  byId("heads-table").replaceChildren(table(["head", "role"], rows));
}

export function drawClock() {
  const whole = count(view.record);
  const slider = byId("clock");
  slider.disabled = whole < 2;
  slider.max = String(Math.max(whole - 1, 0));
  byId("follow").setAttribute("aria-pressed", String(view.index === null));
  if (!whole) {
    setText(byId("clock-text"), "no look yet");
    return;
  }
  const at = Math.min(view.index ?? whole - 1, whole - 1);
  slider.value = String(at);
  const { step, loss } = view.record.numbers;
  const words = `step ${step[at]}, loss ${number(loss[at])}`;
  setText(byId("clock-text"), words);
  slider.setAttribute("aria-valuetext", `${words}, look ${at + 1} of ${whole}`);
}
