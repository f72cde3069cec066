// One control for one setting: slider with a number beside it, choice, flag, number, list, rows, text.
import { emit, make } from "./app.js";
import { barsFor } from "./bars.js";
import { exact, number } from "./text.js";

const STEPS = 400; // positions of a slider that does not go in whole steps
let count = 0;

/** A field {path, element, refused, set(value), refuse(message)}; `commit(value)` is called with what the reader chose. */
export function fieldFor(path, spec, commit) {
  const id = `f${++count}`;
  const refusal = make("p", { class: "refusal", id: `${id}-refusal`, hidden: true });
  const words = spec.words ? make("p", { class: "help", id: `${id}-words`, text: spec.words }) : null;
  const described = [words ? `${id}-words` : null, `${id}-refusal`].filter(Boolean).join(" ");
  const field = { path, spec, refuse, refused: false };
  const onChange = (value) => {
    refuse("");
    commit(value);
  };
  const build = { bars: barsFor, slider, choice, flag }[spec.shape] ?? textInput;
  const made = build({ id, spec, described, onChange, refuse });
  const options = { class: "label", id: `${id}-label`, for: made.group ? null : id, text: spec.label };
  const label = make(made.group ? "span" : "label", options);
  const group = made.group ? { role: "group", "aria-labelledby": `${id}-label` } : {};
  const held = { class: `field ${spec.shape}`, "data-field": path, ...group };
  field.element = make("div", held, label, ...made.parts, words, refusal);
  field.set = (value) => {
    refuse("");
    made.set(value);
  };
  return field;

  function refuse(message) {
    refusal.textContent = message;
    refusal.hidden = !message;
    for (const input of field.element?.querySelectorAll("input, select, textarea, [role=slider]") ?? []) {
      if (message) input.setAttribute("aria-invalid", "true");
      else input.removeAttribute("aria-invalid");
    }
    if (field.refused === Boolean(message)) return;
    field.refused = Boolean(message);
    emit("refusals");
  }
}

/** Contexts and noises are lists with one entry: a scalar control reads and writes that one. */
export function scalar() {
  let listed = false;
  return {
    read(value) {
      listed = Array.isArray(value);
      return listed ? (value[0] ?? null) : value;
    },
    write: (value) => (listed ? [value] : value),
  };
}

/** The number in a text, or a sentence that says what is wrong with it. */
export function parseNumber(text, spec) {
  const clean = text.trim().replace("−", "-");
  if (clean === "") return spec.nullable ? { value: null } : { wrong: `${spec.label} needs a number.` };
  const value = Number(clean);
  if (/^-?\d+,\d+$/.test(clean)) return { wrong: `${spec.label}: write ${clean.replace(",", ".")}, with a point.` };
  if (!Number.isFinite(value)) return { wrong: `${spec.label}: “${clean}” is not a number.` };
  if (spec.whole && !Number.isInteger(value)) return { wrong: `${spec.label}: ${clean} is not a whole number.` };
  return { value };
}

/** A text field for one number. */
export function numberInput({ id, spec, described, label, onChange, refuse }) {
  const input = make("input", {
    id,
    type: "text",
    inputmode: "decimal",
    autocomplete: "off",
    class: "number",
    "aria-describedby": described,
    "aria-label": label,
    placeholder: spec.nullable ? "default" : null,
  });
  input.addEventListener("change", () => {
    const { value, wrong } = parseNumber(input.value, spec);
    if (wrong) refuse(wrong);
    else onChange(value);
  });
  return input;
}

function slider({ id, spec, described, onChange, refuse }) {
  const { low, high } = spec;
  const log = spec.log && low > 0;
  const direct = spec.whole && !log;
  const form = scalar();
  const toPlace = (value) => (direct ? value : log ? (STEPS * Math.log(value / low)) / Math.log(high / low) : (STEPS * (value - low)) / (high - low));
  const toValue = (place) => {
    if (direct) return place;
    const raw = log ? low * (high / low) ** (place / STEPS) : low + ((high - low) * place) / STEPS;
    if (spec.whole) return Math.min(high, Math.max(low, Math.round(raw)));
    const step = log ? 10 ** (Math.floor(Math.log10(raw)) - 1) : (spec.step ?? (high - low) / 100);
    return Math.min(high, Math.max(low, Number((Math.round(raw / step) * step).toPrecision(6))));
  };
  const span = direct ? { min: low, max: high, step: spec.step ?? 1 } : { min: 0, max: STEPS, step: 1 };
  const range = make("input", { type: "range", id, ...span, "aria-describedby": described });
  const field = numberInput({ spec, described, label: `${spec.label}, exact number`, onChange: (value) => onChange(form.write(value)), refuse });
  range.addEventListener("input", () => {
    const value = toValue(Number(range.value));
    field.value = exact(value);
    range.setAttribute("aria-valuetext", number(value));
    onChange(form.write(value));
  });
  const set = (given) => {
    const value = form.read(given);
    if (document.activeElement !== range) {
      const inside = value === null || value === undefined ? null : Math.min(Math.max(value, low), high);
      range.value = inside === null ? range.min : String(toPlace(inside));
    }
    range.setAttribute("aria-valuetext", value === null ? "default" : number(value));
    field.value = exact(value);
  };
  const dice = /(^|\W)seed/i.test(spec.label) ? diceFor((value) => { field.value = String(value); set(value); onChange(form.write(value)); }) : null;
  return { parts: [make("div", { class: "row" }, range, field, dice)], set };
}

function diceFor(onChange) {
  const roll = () => onChange(Math.floor(Math.random() * 10000));
  return make("button", { type: "button", class: "dice", title: "Another seed", "aria-label": "Another seed, at random", text: "⚄", onclick: roll });
}

function choice({ id, spec, described, onChange }) {
  const choices = spec.choices ?? [];
  const options = choices.map(({ value, label }) => make("option", { value: JSON.stringify(value), text: label }));
  if (spec.nullable) options.unshift(make("option", { value: "null", text: "default" }));
  const select = make("select", { id, "aria-describedby": described }, ...options);
  select.addEventListener("change", () => onChange(JSON.parse(select.value)));
  const set = (value) => {
    select.value = JSON.stringify(value ?? null);
    // Presets may give several settings one choice each; a value outside of them is shown as it is.
    if (select.selectedIndex < 0 && value !== undefined) {
      select.append(make("option", { value: JSON.stringify(value), text: String(value) }));
      select.value = JSON.stringify(value);
    }
  };
  return { parts: [select], set };
}

function flag({ id, described, onChange }) {
  const input = make("input", { type: "checkbox", id, "aria-describedby": described });
  input.addEventListener("change", () => onChange(input.checked));
  return { parts: [input], set: (value) => { input.checked = Boolean(value); } };
}

/** Number, list, rows and text: one line, or one row per line. */
function textInput({ id, spec, described, onChange, refuse }) {
  const form = scalar();
  if (spec.shape === "number") {
    const input = numberInput({ id, spec, described, onChange: (value) => onChange(form.write(value)), refuse });
    const dice = spec.label === "Seed" ? diceFor((value) => { input.value = String(value); onChange(value); }) : null;
    return { parts: [make("div", { class: "row" }, input, dice)], set: (value) => { input.value = exact(form.read(value)); } };
  }
  const rows = spec.shape === "rows";
  const size = rows ? { rows: 3 } : { type: "text" };
  const hints = { autocomplete: "off", "aria-describedby": described, placeholder: spec.nullable ? "default" : null };
  const input = make(rows ? "textarea" : "input", { id, ...size, ...hints });
  const lineOf = (text) => text.split(/[\s,;]+/).filter(Boolean).map((word) => parseNumber(word, spec));
  input.addEventListener("change", () => {
    const text = input.value.trim();
    if (text === "" && spec.nullable) return onChange(null);
    if (spec.shape === "text") return onChange(text);
    const lines = (rows ? text.split("\n").filter((line) => line.trim()) : [text]).map(lineOf);
    const wrong = lines.flat().find((one) => one.wrong)?.wrong;
    if (wrong) return refuse(wrong);
    const values = lines.map((line) => line.map((one) => one.value));
    onChange(rows ? values : values[0]);
  });
  const show = (value) => {
    if (value === null || value === undefined) return "";
    if (spec.shape === "text") return String(value);
    const line = (held) => [held].flat().map(exact).join(", ");
    return rows && Array.isArray(value) ? value.map(line).join("\n") : line(value);
  };
  return { parts: [input], set: (value) => { input.value = show(value); } };
}
