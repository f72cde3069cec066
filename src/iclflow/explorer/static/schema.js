// The JSON schema of a config, read as a list of settings; and paths into configs.
import { title } from "./text.js";

export const SECTIONS = ["task", "model", "risk", "flow", "save"];

export function valueAt(config, path) {
  return path.split(".").reduce((held, name) => held?.[name], config);
}

/** A copy of `config` with `value` at `path`. */
export function withValue(config, path, value) {
  const copy = structuredClone(config);
  const names = path.split(".");
  const last = names.pop();
  const holder = names.reduce((held, name) => (held[name] ??= {}), copy);
  holder[last] = value;
  return copy;
}

/** The kinds that a section may have. */
export function kindsOf(schema, section) {
  return Object.keys(schema.properties[section]?.discriminator?.mapping ?? {});
}

function definition(schema, section, kind) {
  const reference = schema.properties[section]?.discriminator?.mapping?.[kind];
  return reference ? schema.$defs[reference.split("/").pop()] : null;
}

/** Whether a config of these kinds has the setting at `path`. */
export function exists(schema, config, path) {
  const [section, name] = path.split(".");
  if (!name) return section in schema.properties;
  return Boolean(definition(schema, section, config[section]?.kind)?.properties?.[name]);
}

/** How one property is shown: shape, label, words, limits. */
function read(name, property) {
  let held = property;
  let nullable = false;
  if (property.anyOf) {
    const options = property.anyOf.filter((one) => one.type !== "null");
    nullable = options.length < property.anyOf.length;
    // Of several forms ("a number, or a list of numbers") the list is the one that can say all of them.
    held = { ...property, ...(options.find((one) => one.type === "array") ?? options[0]) };
  }
  const spec = { label: title(name), words: property.description ?? "", nullable, default: property.default };
  if (held.enum) {
    const choices = held.enum.map((value) => ({ value, label: String(value).replaceAll("_", " ") }));
    return { ...spec, shape: "choice", choices };
  }
  if (held.type === "boolean") return { ...spec, shape: "flag" };
  if (held.type === "array") {
    return { ...spec, shape: held.items?.type === "array" ? "rows" : "list", whole: held.items?.type === "integer" };
  }
  if (held.type === "integer" || held.type === "number") {
    return { ...spec, shape: "number", whole: held.type === "integer", low: held.minimum, high: held.maximum };
  }
  return { ...spec, shape: "text" };
}

/** Every setting that a config of these kinds has, by section: [{section, kind, settings: [{path, spec}]}]. */
export function everySetting(schema, config) {
  const top = Object.entries(schema.properties)
    .filter(([name]) => !SECTIONS.includes(name))
    .map(([name, property]) => ({ path: name, spec: read(name, property) }));
  const parts = [{ section: null, settings: top }];
  for (const section of SECTIONS) {
    const held = definition(schema, section, config[section]?.kind);
    if (!held) continue;
    const settings = Object.entries(held.properties)
      .filter(([name]) => name !== "kind")
      .map(([name, property]) => ({ path: `${section}.${name}`, spec: read(name, property) }));
    parts.push({ section, words: held.description ?? "", settings });
  }
  return parts;
}
