// The controls of the chosen preset, all settings below them, and refusals where they belong.
import { app, byId, emit, make } from "./app.js";
import { post, RequestError } from "./api.js";
import { fieldFor } from "./fields.js";
import { SECTIONS, everySetting, exists, kindsOf, valueAt, withValue } from "./schema.js";
import { showError, showNote } from "./notes.js";
import { setting, title } from "./text.js";

const main = byId("controls");
const rest = byId("settings");
let built = "";
let fields = [];
let latest = 0; // number of the last change of kind: only its answer counts
let edits = 0; // rises with every other change
let hasGeneralError = false; // whether an error is shown that belongs to no control

/** The config was replaced: answers about the one before it are discarded. */
export const discardAnswers = () => {
  latest++;
};

const choicesOf = (section) =>
  app.start.kinds?.[section] ??
  kindsOf(app.start.schema, section).map((value) => ({ value, label: value.replaceAll("_", " ") }));

/** The control of a path: what the server says, filled up from the schema. */
function specOf(path) {
  const said = app.start.controls?.[path] ?? {};
  const [section, name] = path.split(".");
  if (name === "kind") {
    return { label: title(section), words: "", ...said, shape: "choice", choices: said.choices ?? choicesOf(section) };
  }
  const settings = everySetting(app.start.schema, app.config).flatMap((part) => part.settings);
  const known = settings.find((one) => one.path === path)?.spec;
  const spec = { ...known, ...said };
  const value = valueAt(app.config, path);
  // Only the choices that this kind has, and no bound beyond what can work.
  if (said.choices && known?.choices) {
    spec.choices = said.choices.filter((one) => known.choices.some((other) => other.value === one.value));
  }
  if (path === "model.rank") {
    spec.high = Math.max(2, Math.min(spec.high, app.config.task?.eigenvalues?.length ?? spec.high));
  }
  spec.ranked = path === "task.eigenvalues" && ["linear_regression", "in_context_in_weight"].includes(app.config.task?.kind);
  if (spec.shape === "bars") spec.most = app.start.limits?.find((limit) => limit.field === path)?.value;
  // A list of several numbers does not fit on a slider.
  if (["slider", "number"].includes(spec.shape) && Array.isArray(value) && value.length > 1) spec.shape = "list";
  if (spec.shape === "bars" && !(Array.isArray(value) && value.every(Number.isFinite))) spec.shape = "list";
  return spec;
}

/** The preset whose controls are offered: the chosen one, or else the first of the same kinds. */
function presetOf() {
  const chosen = app.start.presets.find((one) => one.id === app.preset);
  const alike = (one, ...sections) => sections.every((name) => one.config[name]?.kind === app.config[name]?.kind);
  const others = app.start.presets;
  return chosen ?? others.find((one) => alike(one, "task", "model")) ?? others.find((one) => alike(one, "model"));
}

/** Builds the controls anew when preset or kinds changed, and sets their values. */
export function drawControls() {
  if (!app.start || !app.config) return;
  const paths = (presetOf()?.controls ?? []).filter((path) => exists(app.start.schema, app.config, path));
  const shapes = paths.map(specOf).map((spec) => [spec.shape, spec.high]);
  const key = JSON.stringify([paths, shapes, SECTIONS.map((section) => app.config[section]?.kind)]);
  if (key !== built) {
    built = key;
    build(paths);
  }
  for (const field of fields) field.set(valueAt(app.config, field.path));
}

function build(paths) {
  fields = [];
  const add = (path, spec) => {
    const field = fieldFor(path, spec, (value) => choose(path, value, spec.shape === "choice"));
    fields.push(field);
    return field.element;
  };
  main.replaceChildren(...paths.map((path) => add(path, specOf(path))));
  const parts = everySetting(app.start.schema, app.config).map(({ section, words, settings }) => {
    const own = `${section}.kind`;
    const kind = section && !paths.includes(own) ? [add(own, { ...specOf(own), label: "Kind" })] : [];
    const others = settings.filter(({ path }) => !paths.includes(path)).map(({ path, spec }) => add(path, spec));
    if (!kind.length && !others.length) return null;
    const head = make("legend", { text: section ? title(section) : "Run" });
    return make("fieldset", {}, head, words ? make("p", { class: "help", text: words }) : null, ...kind, ...others);
  });
  rest.replaceChildren(...parts.filter(Boolean));
}

/** A setting by the name that the page has for it, and its value. */
function described(path) {
  const label = app.start.controls?.[path]?.label ?? title(path.replace(".kind", "").replace(".", ", "));
  return `${label} is now ${setting(valueAt(app.config, path))}`;
}

/** Applies what the reader chose. A choice may need other changes, which the server makes; a number is set here. */
async function choose(path, value, choice) {
  showGeneralError("");
  if (!choice) {
    edits++;
    app.config = withValue(app.config, path, value);
    emit("config");
    return;
  }
  const mine = ++latest;
  const made = edits;
  try {
    const answer = await post("/api/change", { config: app.config, field: path, value });
    if (mine !== latest) return;
    if (made !== edits) return choose(path, value, true); // something else was changed meanwhile: apply it to that
    if (!answer.ok) throw new RequestError(answer.message, answer.field ?? path, 422);
    app.config = answer.config;
    const others = (answer.changed ?? []).filter((one) => one !== path);
    if (others.length) showNote(`Changed with it: ${others.map(described).join("; ")}.`);
    emit("config");
    drawControls();
  } catch (problem) {
    if (!(problem instanceof RequestError)) throw problem;
    if (mine !== latest) return;
    drawControls();
    showRefusal(problem, path);
  }
}

/** Shows an error at the control that it names, or at the top of the page where there is none. */
export function showRefusal({ message, field }, otherwise = null) {
  const named = field ?? otherwise;
  // The server may name a part of a setting, as in task.eigenvalues.2.
  const isOf = (path) => named === path || named.startsWith(`${path}.`) || named.startsWith(`${path}[`);
  const found = named && fields.find((one) => isOf(one.path));
  if (!found) {
    showGeneralError(message);
    return;
  }
  found.refuse(message);
  for (let fold = found.element.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
}

function showGeneralError(message) {
  showError("field", message);
  hasGeneralError = Boolean(message);
  emit("refusals");
}

/** Removes all errors; invalid input is replaced by the value of the run. */
export function clearRefusals() {
  showGeneralError("");
  for (const field of fields) if (field.refused) field.set(valueAt(app.config, field.path));
}

/** Whether the controls have settings that cannot run, which the page then does not show. */
export const isRefused = () => hasGeneralError || fields.some((field) => field.refused);

export function drawLimits() {
  const words = new Set((app.start.limits ?? []).map((limit) => limit.words)); // one may hold for several settings
  byId("limit-list").replaceChildren(...[...words].map((text) => make("li", { text })));
}
