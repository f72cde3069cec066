// Two runs side by side: what differs between the config of A (pinned) and that of B.
import { app, byId, make } from "./app.js";
import { setting } from "./text.js";

/** A nested config as a flat map from "model.heads" to its value. */
export function flatten(config, before = "", into = new Map()) {
  for (const [name, value] of Object.entries(config ?? {})) {
    const path = before ? `${before}.${name}` : name;
    if (value && typeof value === "object" && !Array.isArray(value)) flatten(value, path, into);
    else into.set(path, value);
  }
  return into;
}

/** The settings in which two configs differ: [path, in A, in B]. */
export function differences(one, other) {
  const a = flatten(one);
  const b = flatten(other);
  const found = [];
  for (const path of new Set([...a.keys(), ...b.keys()])) {
    if (path === "name") continue; // a name decides nothing
    if (JSON.stringify(a.get(path) ?? null) !== JSON.stringify(b.get(path) ?? null)) found.push([path, a.get(path), b.get(path)]);
  }
  return found;
}

export function drawDifferences() {
  const block = byId("differences-block");
  block.hidden = !app.pinned;
  byId("unpin").hidden = !app.pinned;
  byId("pin").textContent = app.pinned ? "Pin this run instead" : "Pin this run as A";
  document.body.classList.toggle("comparing", Boolean(app.pinned));
  if (!app.pinned) return;
  const place = byId("differences");
  const other = app.current;
  if (!other || other === app.pinned) {
    place.replaceChildren(make("p", { class: "quiet", text: "This run is A. Change a setting: the next run is drawn as B, beside it." }));
    return;
  }
  const found = differences(app.pinned.config, other.config ?? app.config);
  if (!found.length) {
    place.replaceChildren(make("p", { class: "quiet", text: "Nothing: both configs are equal." }));
    return;
  }
  const rows = found.map(([path, a, b]) => {
    const name = make("th", { scope: "row" }, make("code", { text: path }));
    return make("tr", { "data-difference": path }, name, make("td", { text: setting(a) }), make("td", { text: setting(b) }));
  });
  const head = make("tr", {}, make("th", { text: "setting" }), make("th", { text: "A" }), make("th", { text: "B" }));
  place.replaceChildren(make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
}
