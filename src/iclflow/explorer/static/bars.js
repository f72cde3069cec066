// Eigenvalues as bars that can be dragged, moved with the keyboard, and written as numbers.
import { make } from "./app.js";
import { parseNumber } from "./fields.js";
import { exact, number } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 260;
const HEIGHT = 112;
const FOOT = 16; // px below the bars, for their numbers

function draw(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  return made;
}

/** The top of the axis: a round number somewhat above the largest bar. */
function roof(values, spec) {
  const top = 1.2 * Math.max(...values);
  if (!(top > 0)) return Math.min(1, spec.high ?? Infinity); // the server says what is wrong with such values
  const power = 10 ** Math.floor(Math.log10(top));
  const round = [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => step * power >= top - 1e-12) * power;
  return Math.min(round, spec.high ?? Infinity);
}

export function barsFor({ spec, described, onChange, refuse }) {
  const low = spec.low ?? 0;
  const most = spec.most ?? 16;
  let values = [];
  let top = 1;
  let held = null; // the bar under the finger
  const picture = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "bars", role: "presentation" });
  const numbers = make("div", { class: "bar-numbers" });
  const add = make("button", { type: "button", text: "Add component", onclick: () => change([...values, values[values.length - 1] / 2 || 0.1]) });
  const remove = make("button", { type: "button", text: "Remove last", onclick: () => change(values.slice(0, -1)) });

  const step = () => spec.step ?? Number((top / 100).toPrecision(1));
  const neat = (value) => {
    const bounded = Math.min(Math.max(value, low > 0 ? low : step()), spec.high ?? Infinity);
    return Number((Math.round(bounded / step()) * step() || bounded).toPrecision(6));
  };
  const slot = () => WIDTH / values.length;
  // Components are numbered by size everywhere else on the page, the largest first, equal ones in their order.
  const rank = (k) => {
    if (!spec.ranked) return k + 1;
    return 1 + values.filter((value, other) => value > values[k] || (value === values[k] && other < k)).length;
  };
  const heightOf = (value) => Math.max(1.5, ((HEIGHT - FOOT) * Math.min(value, top)) / top);

  function change(next) {
    values = next;
    top = roof(values, spec);
    build();
    onChange([...values]);
  }

  function put(k, value, quiet = false) {
    values[k] = value;
    place(k);
    if (!quiet) onChange([...values]);
  }

  function name() {
    values.forEach((_, k) => {
      const group = picture.children[k + 1];
      const label = `${spec.label}, component ${rank(k)}`;
      group.lastElementChild.textContent = String(rank(k));
      group.setAttribute("aria-label", label);
      numbers.children[k].setAttribute("aria-label", `${label}, exact number`);
    });
  }

  function place(k) {
    const group = picture.children[k + 1];
    const height = heightOf(values[k]);
    const [bar, grip] = group.children;
    bar.setAttribute("y", HEIGHT - FOOT - height);
    bar.setAttribute("height", height);
    grip.setAttribute("y", HEIGHT - FOOT - height - 3);
    group.setAttribute("aria-valuenow", values[k]);
    group.setAttribute("aria-valuetext", number(values[k]));
    group.setAttribute("aria-valuemax", spec.high ?? top);
    numbers.children[k].value = exact(values[k]);
    name();
  }

  function key(event, k) {
    const large = event.shiftKey ? 10 : 1;
    const moves = { ArrowUp: large, ArrowRight: large, ArrowDown: -large, ArrowLeft: -large, PageUp: 10, PageDown: -10 };
    if (event.key === "Home") put(k, neat(low));
    else if (event.key === "End") put(k, neat(top));
    else if (event.key in moves) put(k, neat(values[k] + moves[event.key] * step()));
    else return;
    event.preventDefault();
  }

  function build() {
    const wide = slot();
    const base = draw("line", { x1: 0, x2: WIDTH, y1: HEIGHT - FOOT + 0.5, y2: HEIGHT - FOOT + 0.5, class: "base" });
    const groups = values.map((value, k) => {
      const group = draw("g", {
        class: "bar",
        tabindex: 0,
        role: "slider",
        "aria-orientation": "vertical",
        "aria-valuemin": low,
        "aria-describedby": described,
      });
      const inset = Math.min(8, wide * 0.15);
      const x = k * wide + inset;
      group.append(
        draw("rect", { x, width: wide - 2 * inset, rx: 2, class: "fill" }),
        draw("rect", { x, width: wide - 2 * inset, height: 5, rx: 2.5, class: "grip" }),
        draw("rect", { x: k * wide, y: 0, width: wide, height: HEIGHT, class: "reach" }),
      );
      group.append(draw("text", { x: (k + 0.5) * wide, y: HEIGHT - 3, class: "tick" }));
      group.addEventListener("keydown", (event) => key(event, k));
      return group;
    });
    picture.replaceChildren(base, ...groups);
    numbers.replaceChildren(
      ...values.map((value, k) => {
        const options = { type: "text", inputmode: "decimal", class: "number" };
        const input = make("input", { ...options, "aria-describedby": described });
        input.addEventListener("change", () => {
          const read = parseNumber(input.value, { label: `Component ${rank(k)}` });
          if (read.wrong) refuse(read.wrong);
          else change(values.map((old, other) => (other === k ? read.value : old)));
        });
        return input;
      }),
    );
    values.forEach((value, k) => place(k));
    remove.disabled = values.length <= 1;
    add.disabled = values.length >= most;
  }

  const valueAtPointer = (event) => {
    const frame = picture.getBoundingClientRect();
    const up = HEIGHT - FOOT - ((event.clientY - frame.top) / frame.height) * HEIGHT;
    return neat((up / (HEIGHT - FOOT)) * top);
  };
  picture.addEventListener("pointerdown", (event) => {
    const frame = picture.getBoundingClientRect();
    held = Math.min(values.length - 1, Math.max(0, Math.floor(((event.clientX - frame.left) / frame.width) * values.length)));
    picture.setPointerCapture(event.pointerId);
    picture.children[held + 1].focus();
    put(held, valueAtPointer(event));
  });
  picture.addEventListener("pointermove", (event) => {
    if (held !== null) put(held, valueAtPointer(event));
  });
  const release = () => {
    if (held === null) return;
    held = null;
    top = roof(values, spec); // only now, so that the axis does not run away under the finger
    values.forEach((value, k) => place(k));
  };
  picture.addEventListener("pointerup", release);
  picture.addEventListener("pointercancel", release);

  const set = (given) => {
    const next = [...(given ?? [])];
    if (held !== null || JSON.stringify(next) === JSON.stringify(values)) return;
    const same = next.length === values.length;
    values = next;
    if (!values.length) return picture.replaceChildren(), numbers.replaceChildren();
    top = roof(values, spec);
    if (same) values.forEach((value, k) => place(k));
    else build();
  };
  return { group: true, parts: [picture, numbers, make("div", { class: "row bar-tools" }, add, remove)], set };
}
