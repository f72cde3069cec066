// The presets as cards, by paper.
import { app, byId, make } from "./app.js";

const PAPERS = [
  ["linear", "Linear attention"],
  ["softmax", "Softmax attention"],
  ["multitask", "Several tasks"],
];

export function buildPresets(choose) {
  const groups = PAPERS.map(([paper, name]) => {
    const own = app.start.presets.filter((preset) => preset.paper === paper);
    if (!own.length) return null;
    return make("section", { class: "paper", "aria-label": name }, make("h3", { text: name }), make("div", { class: "cards" }, ...own.map((preset) => card(preset, choose))));
  });
  byId("presets").replaceChildren(...groups.filter(Boolean));
}

function card(preset, choose) {
  const picture = make("img", { src: preset.picture, alt: "", loading: "lazy", width: 128, height: 72 });
  picture.addEventListener("error", () => picture.classList.add("missing"));
  return make("button", { type: "button", class: "card", "data-preset": preset.id, "aria-pressed": "false", onclick: () => choose(preset) }, picture, make("span", { text: preset.title }));
}

/** Marks the chosen preset and says its words. */
export function drawPreset() {
  for (const one of document.querySelectorAll("#presets .card")) one.setAttribute("aria-pressed", String(one.dataset.preset === app.preset));
  document.querySelector('#presets .card[aria-pressed="true"]')?.scrollIntoView({ block: "nearest" });
  const preset = app.start?.presets.find((one) => one.id === app.preset);
  byId("preset-words").textContent = preset?.words ?? "";
}
