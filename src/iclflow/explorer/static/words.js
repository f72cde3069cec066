// The right column: what happens at the moment of the slider, and the claims with their verdicts.
import { app, byId, indexAt, make, momentTime, reaches } from "./app.js";
import { isOver, wordsAt } from "./runs.js";
import { columns } from "./panels.js";
import { number } from "./text.js";
import { markVerdict } from "./verdicts.js";

const place = byId("words");
const list = byId("claims");
// While a run goes on a verdict is about what it has computed; one that was stopped keeps such verdicts.
const SO_FAR = new Set(["holds", "fails", "misstated", "overread"]);

/** Writes the sentences of the moment. */
export function drawWords() {
  const blocks = [];
  for (const which of columns().reverse()) {
    const run = which === "A" ? app.pinned : app.shown;
    if (!run?.times.length) continue;
    const now = run.times[indexAt(run, momentTime())];
    const found = wordsAt(run, momentTime());
    const sentences = found?.sentences.length ? found.sentences : ["Nothing is measured at this moment yet."];
    // Words are measured at fewer moments than the curves have points.
    const earlier = found && found.time < now && number(found.time) !== number(now);
    const unit = run.clock === "step" ? "step" : "time";
    let measured = earlier ? `Measured at ${unit} ${number(found.time)}.` : "";
    if (!reaches(run, momentTime())) measured = `The run ends before this moment, at ${unit} ${number(now)}. ${measured}`.trim();
    blocks.push({ which, sentences, measured });
  }
  const key = JSON.stringify(blocks);
  if (!blocks.length || place.dataset.key === key) return;
  place.dataset.key = key;
  place.replaceChildren(
    ...blocks.map(({ which, sentences, measured }) =>
      make(
        "div",
        { "data-run": which },
        blocks.length > 1 ? make("h3", { text: which === "A" ? "A, pinned" : "B" }) : null,
        ...sentences.map((text, k) => make("p", { text, class: k ? null : "first" })),
        measured ? make("p", { class: "quiet", text: measured }) : null,
      ),
    ),
  );
}

const value = (shown) => (typeof shown === "number" ? number(shown, 4) : (shown ?? "–"));

function rows(claim) {
  const found = [
    ["what is compared", claim.what],
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

/**
 * Writes the claims of the run that the controls describe, even while the picture is still that of the one before.
 * Those that are on the page already keep their place and stay folded or open.
 */
export function drawClaims() {
  const run = app.current ?? app.shown;
  const claims = run?.claims ?? [];
  if (!claims.length) {
    if (run?.claimsKnown) describeWithout();
    else none(run && isOver(run) ? "No claim was measured." : "Claims appear when a run has started.");
    return;
  }
  const here = new Map([...list.querySelectorAll("[data-claim]")].map((one) => [one.dataset.claim, one]));
  const wanted = claims.map((claim) => here.get(claim.id) ?? emptyClaim(claim.id));
  delete list.dataset.key;
  if (wanted.length !== list.children.length || wanted.some((one, k) => list.children[k] !== one)) list.replaceChildren(...wanted);
  claims.forEach((claim, k) => fill(wanted[k], claim, run));
}

/** What a setting shows that no claim on a single run is about; for a preset, which claims test it on several. */
function describeWithout() {
  const preset = app.start?.presets.find((one) => one.id === app.preset);
  const key = `without ${preset?.id ?? ""}`;
  if (list.dataset.key === key && list.children.length) return;
  const why = "No claim of the papers can be checked on a single run of this setting.";
  const parts = [make("p", { class: "quiet", text: why })];
  if (preset) parts.push(make("p", { class: "statement" }, make("b", { text: "What it shows: " }), preset.words));
  for (const claim of preset?.claims ?? []) {
    const command = make("code", { text: `iclflow verify --claim ${claim.id}` });
    parts.push(make("p", { class: "elsewhere" }, make("b", { text: "Tested on runs of its own: " }), claim.statement, " ", command));
  }
  list.replaceChildren(...parts);
  list.dataset.key = key;
}

function none(text) {
  delete list.dataset.key;
  if (list.children.length !== 1 || list.textContent !== text) list.replaceChildren(make("p", { class: "quiet", text }));
}

/** The verdict as it is shown: once a run is over, no claim is waiting. */
const verdictOf = (claim, run) => (claim.verdict === "waiting" && isOver(run) ? "unmeasured" : claim.verdict);

/** The words after a verdict that is not about a whole run. */
function soFar(verdict, run) {
  if (run.claimsFinal || !SO_FAR.has(verdict)) return "";
  return isOver(run) ? " as far as it was computed" : " so far";
}

function emptyClaim(id) {
  const parts = ["verdict", "statement", "numbers"].map((name) => make("span", { class: name }));
  return make("details", { class: "claim", "data-claim": id }, make("summary", {}, ...parts), make("dl"));
}

function fill(element, claim, run) {
  const found = verdictOf(claim, run);
  const more = soFar(found, run);
  const key = JSON.stringify([claim, found, more]);
  if (element.key === key) return;
  element.key = key;
  element.dataset.final = more ? "no" : "yes";
  markVerdict(element, found, more);
  element.querySelector(".statement").textContent = claim.statement;
  const numbers = [];
  if (claim.predicted !== null && claim.predicted !== undefined) numbers.push(`predicted ${value(claim.predicted)}`);
  if (claim.measured !== null && claim.measured !== undefined) numbers.push(`measured ${value(claim.measured)}`);
  if (claim.tolerance !== null && claim.tolerance !== undefined) numbers.push(`tolerance ${value(claim.tolerance)}`);
  const what = claim.what && numbers.length ? `${claim.what}: ` : "";
  const why = found === "inconclusive" ? claim.reason : "";
  element.querySelector(".numbers").textContent = why || `${what}${numbers.join(" · ")}`;
  const details = rows(claim).flatMap(([name, text]) => [make("dt", { text: name }), make("dd", { text })]);
  const id = [make("dt", { text: "claim" }), make("dd", {}, make("code", { text: claim.id }))];
  element.querySelector("dl").replaceChildren(...details, ...id);
}
