// The presets as cards, by paper.
import { app, byId, make } from "./app.js";
import { differences } from "./compare.js";

export function buildPresets(choose) {
  const groups = Object.entries(app.start.papers).map(([paper, name]) => {
    const own = app.start.presets.filter((preset) => preset.paper === paper);
    if (!own.length) return null;
    const cards = make("div", { class: "cards" }, ...own.map((preset) => card(preset, choose)));
    return make("section", { class: "paper", "aria-label": name }, make("h3", { text: name }), cards);
  });
  byId("presets").replaceChildren(...groups.filter(Boolean));
}

function card(preset, choose) {
  const picture = make("img", { src: preset.picture, alt: "", loading: "lazy", width: 128, height: 72 });
  picture.addEventListener("error", () => picture.classList.add("missing"));
  const options = { type: "button", class: "card", "data-preset": preset.id, "aria-pressed": "false" };
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
  for (const one of document.querySelectorAll("#presets .card")) {
    one.setAttribute("aria-pressed", String(one.dataset.preset === app.preset));
  }
  bringIntoList(document.querySelector('#presets .card[aria-pressed="true"]'));
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
