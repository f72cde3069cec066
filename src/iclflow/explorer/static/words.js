// The right column: what is happening at the moment, and the claims with their verdicts.
import { app, byId, make, momentTime } from "./app.js";
import { sentencesAt } from "./runs.js";
import { columns } from "./panels.js";
import { number } from "./text.js";

const place = byId("words");
const list = byId("claims");
const VERDICTS = {
  holds: ["✓", "holds"],
  fails: ["✕", "fails"],
  misstated: ["≠", "misstated"],
  inconclusive: ["?", "inconclusive"],
  waiting: ["…", "waiting"],
};

/** Writes the sentences of the moment. */
export function drawWords() {
  const blocks = [];
  for (const which of columns().reverse()) {
    const run = which === "A" ? app.pinned : app.shown;
    if (!run?.times.length) continue;
    const sentences = sentencesAt(run, momentTime());
    blocks.push({ which, sentences: sentences.length ? sentences : ["Nothing measured yet at this moment."] });
  }
  const key = JSON.stringify(blocks);
  if (!blocks.length || place.dataset.key === key) return;
  place.dataset.key = key;
  place.replaceChildren(
    ...blocks.map(({ which, sentences }) =>
      make("div", { "data-run": which }, blocks.length > 1 ? make("h3", { text: which === "A" ? "A, pinned" : "B" }) : null, ...sentences.map((text, k) => make("p", { text, class: k ? null : "first" }))),
    ),
  );
}

const value = (shown) => (typeof shown === "number" ? number(shown, 4) : (shown ?? "–"));

function rows(claim) {
  const found = [
    ["predicted", value(claim.predicted)],
    ["measured", value(claim.measured)],
    ["error", value(claim.error)],
    ["tolerance", value(claim.tolerance)],
    ["why this tolerance", claim.tolerance_reason],
    ["reason", claim.reason],
    ["source", claim.source],
  ];
  return found.filter(([, text]) => text !== null && text !== undefined && text !== "" && text !== "–");
}

/** Writes the claims; those that are on the page already keep their place and stay folded or open. */
export function drawClaims() {
  const claims = app.shown?.claims ?? [];
  if (!claims.length) {
    if (app.shown?.claimsFinal) list.replaceChildren(make("p", { class: "quiet", text: "No claim of the papers is about this setting." }));
    return;
  }
  const here = new Map([...list.querySelectorAll("[data-claim]")].map((one) => [one.dataset.claim, one]));
  const wanted = claims.map((claim) => here.get(claim.id) ?? emptyClaim(claim.id));
  if (wanted.length !== list.children.length || wanted.some((one, k) => list.children[k] !== one)) list.replaceChildren(...wanted);
  claims.forEach((claim, k) => fill(wanted[k], claim));
}

function emptyClaim(id) {
  const summary = make("summary", {}, make("span", { class: "verdict" }), make("span", { class: "statement" }), make("span", { class: "numbers" }));
  return make("details", { class: "claim", "data-claim": id }, summary, make("dl"));
}

function fill(element, claim) {
  const key = JSON.stringify(claim);
  if (element.key === key) return;
  element.key = key;
  const [icon, word] = VERDICTS[claim.verdict] ?? ["?", claim.verdict];
  element.dataset.verdict = claim.verdict;
  const verdict = element.querySelector(".verdict");
  verdict.replaceChildren(make("span", { class: "icon", "aria-hidden": "true", text: icon }), word);
  element.querySelector(".statement").textContent = claim.statement;
  const numbers = [];
  if (claim.predicted !== null && claim.predicted !== undefined) numbers.push(`predicted ${value(claim.predicted)}`);
  if (claim.measured !== null && claim.measured !== undefined) numbers.push(`measured ${value(claim.measured)}`);
  if (claim.tolerance !== null && claim.tolerance !== undefined) numbers.push(`tolerance ${value(claim.tolerance)}`);
  element.querySelector(".numbers").textContent = numbers.join(" · ");
  const details = rows(claim).flatMap(([name, text]) => [make("dt", { text: name }), make("dd", { text })]);
  element.querySelector("dl").replaceChildren(...details, make("dt", { text: "claim" }), make("dd", {}, make("code", { text: claim.id })));
}
