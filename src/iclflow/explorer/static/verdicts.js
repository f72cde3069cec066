// Verdicts of claims, with their signs.
import { make } from "./app.js";

const VERDICTS = {
  holds: ["✓", "holds"],
  fails: ["✕", "fails"],
  misstated: ["≠", "misstated"],
  overread: ["⊄", "overread"],
  inconclusive: ["?", "inconclusive"],
  waiting: ["…", "waiting"],
  unmeasured: ["–", "not measured"],
};

/** Shows a verdict, and words after it, in the part of an element that is for it. */
export function markVerdict(element, verdict, more = "") {
  const [icon, word] = VERDICTS[verdict] ?? ["?", verdict];
  element.dataset.verdict = verdict;
  element.querySelector(".verdict").replaceChildren(make("span", { class: "icon", "aria-hidden": "true", text: icon }), `${word}${more}`);
}
