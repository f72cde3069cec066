// The presets as cards, by paper.
import { app, byId, make } from "./app.js";
import { differences } from "./compare.js";

export function buildPresets(choose) {
  const groups = Object.entries(app.start.papers).map(([paper, name]) => {
    const own = app.start.presets.filter((preset) => preset.paper === paper);
    if (!own.length) return null;
    const cards = make("div", { class: "cards", role: "presentation" }, ...own.map((preset) => card(preset, choose)));
    const heading = make("p", { class: "paper-name", "aria-hidden": "true", text: name });
    return make("div", { class: "paper", role: "group", "aria-label": name }, heading, cards);
  });
  const list = byId("presets");
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Presets");
  list.replaceChildren(...groups.filter(Boolean));
  list.addEventListener("keydown", walk);
}

const cards = () => [...document.querySelectorAll("#presets .card")];

/** The card that an arrow leads to from another one, as they lie on the page; null if there is none. */
function beside(from, key) {
  const all = cards();
  if (key === "Home") return all[0];
  if (key === "End") return all[all.length - 1];
  const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
  if (step) return all[all.indexOf(from) + step] ?? null;
  const side = { ArrowDown: 1, ArrowUp: -1 }[key];
  if (!side) return null;
  const here = from.getBoundingClientRect();
  const far = (one) => side * (one.top - here.top);
  const others = all.map((card) => ({ card, box: card.getBoundingClientRect() })).filter(({ box }) => far(box) > 1);
  const next = Math.min(...others.map(({ box }) => far(box)));
  const row = others.filter(({ box }) => far(box) <= next + 1);
  row.sort((a, b) => Math.abs(a.box.left - here.left) - Math.abs(b.box.left - here.left));
  return row[0]?.card ?? null;
}

/** Arrow keys go from preset to preset; Enter or Space, as on every button, takes the one that has the focus. */
function walk(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || !event.target.matches(".card")) return;
  const next = beside(event.target, event.key);
  if (!next) return;
  event.preventDefault();
  stopAt(next);
  next.focus({ preventScroll: true });
  bringIntoList(next);
}

/** The list is one stop of the Tab key: at this card. */
function stopAt(card) {
  for (const one of cards()) one.tabIndex = one === card ? 0 : -1;
}

function card(preset, choose) {
  const picture = make("img", { src: preset.picture, alt: "", loading: "lazy", width: 128, height: 72 });
  picture.addEventListener("error", () => picture.classList.add("missing"));
  const options = { type: "button", class: "card", role: "option", "data-preset": preset.id, "aria-selected": "false" };
  return make("button", { ...options, onclick: () => choose(preset) }, picture, make("span", { text: preset.title }));
}

/** Scrolls the list, and only the list: `scrollIntoView` would move the page as well. */
function bringIntoList(one) {
  if (!one) return;
  const list = byId("presets");
  const outer = list.getBoundingClientRect();
  const inner = one.getBoundingClientRect();
  if (inner.top < outer.top) list.scrollTop += inner.top - outer.top;
  else if (inner.bottom > outer.bottom) list.scrollTop += inner.bottom - outer.bottom;
}

/** Marks the chosen preset and shows its words; for a stored run, its name and where it comes from. */
export function drawPreset() {
  for (const one of cards()) one.setAttribute("aria-selected", String(one.dataset.preset === app.preset));
  const chosen = document.querySelector('#presets .card[aria-selected="true"]');
  stopAt(chosen ?? cards()[0]);
  bringIntoList(chosen);
  const preset = app.start?.presets.find((one) => one.id === app.preset);
  const { name, words } = app.opened ?? {};
  const parts = name ? [make("b", { text: name }), ` ${words}`] : [preset?.words ?? ""];
  byId("preset-words").replaceChildren(...parts);
}

/** Shows what differs from the preset or the stored run: one line, so that nothing below it moves. */
export function drawOrigin() {
  const origin = app.opened ?? app.start?.presets.find((one) => one.id === app.preset);
  const changed = origin && app.config ? differences(origin.config, app.config).map(([path]) => path) : [];
  const text = changed.length ? `Changed from ${app.opened ? app.opened.name : "the preset"}: ${changed.join(", ")}` : "";
  const place = byId("preset-changes");
  if (place.textContent === text) return;
  place.textContent = text;
  place.title = text;
}
