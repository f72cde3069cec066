// Light and dark: as the system says, unless the reader chose.
import { byId, emit } from "./app.js";
import { lasting } from "./storage.js";

const system = matchMedia("(prefers-color-scheme: dark)");
const ORDER = ["system", "light", "dark"];
const NAMES = { system: "as the system", light: "light", dark: "dark" };
const button = byId("theme");

const chosen = () => {
  const held = lasting.read("theme");
  return ORDER.includes(held) ? held : "system";
};

function applyTheme() {
  const choice = chosen();
  const dark = choice === "dark" || (choice === "system" && system.matches);
  document.documentElement.dataset.dark = dark ? "yes" : "no";
  button.textContent = `Colours: ${choice === "system" ? "system" : choice}`;
  button.setAttribute("aria-label", `Colours: ${NAMES[choice]}. Press for ${NAMES[next(choice)]}.`);
  emit("theme");
}

const next = (choice) => ORDER[(ORDER.indexOf(choice) + 1) % ORDER.length];

export function wireTheme() {
  system.addEventListener("change", applyTheme);
  button.addEventListener("click", () => {
    lasting.write("theme", next(chosen()));
    applyTheme();
  });
  applyTheme();
}
