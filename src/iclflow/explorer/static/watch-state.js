// What the page of trainings shows, and which part of it: kept in its address.
import { newRecord } from "./watch-record.js";

export const view = {
  trainings: [], // what the server says of each
  chosen: null, // id of the training that is drawn
  record: newRecord(),
  label: 0,
  logStep: null, // null: as the looks are spaced
  logLoss: false,
  index: null, // the look that the slider stands at; null: the last one
  look: null, // everything about that look
};

export const training = () => view.trainings.find((one) => one.id === view.chosen) ?? null;

export function load() {
  const given = new URLSearchParams(location.hash.slice(1));
  view.chosen = given.get("training");
  view.label = Number(given.get("label")) || 0;
  view.logStep = given.has("logstep") ? given.get("logstep") === "1" : null;
  view.logLoss = given.get("logloss") === "1";
  const index = given.get("look");
  view.index = index !== null && /^\d{1,9}$/.test(index) ? Number(index) : null;
}

export function save() {
  const held = new URLSearchParams();
  if (view.chosen) held.set("training", view.chosen);
  if (view.label) held.set("label", view.label);
  if (view.logStep !== null) held.set("logstep", view.logStep ? "1" : "0");
  if (view.logLoss) held.set("logloss", "1");
  if (view.index !== null) held.set("look", view.index);
  history.replaceState(null, "", `${location.pathname}#${held}`);
}
