// The weights at one moment: fetched when asked for, the latest wish first, a few kept.
import { get, Refusal } from "./api.js";

const KEPT = 80;
const kept = new Map(); // "run/index" -> moment, oldest first
const lanes = new Map(); // one request at a time for each place that shows weights

function remember(key, moment) {
  kept.delete(key);
  kept.set(key, moment);
  if (kept.size > KEPT) kept.delete(kept.keys().next().value);
}

export function known(run, index) {
  const key = `${run.id}/${index}`;
  const moment = kept.get(key);
  if (moment) remember(key, moment);
  return moment ?? null;
}

/** Forgets the moments of a run from an index on: its points were replaced. */
export function dropMoments(run, from) {
  for (const key of [...kept.keys()]) {
    const [id, index] = key.split("/");
    if (id === run.id && Number(index) >= from) kept.delete(key);
  }
}

/**
 * Asks for a moment and calls `then(moment)`. While a request of the same lane is under way only the last
 * wish is remembered, so that dragging never builds a queue.
 */
export function want(lane, run, index, then) {
  const moment = known(run, index);
  const held = lanes.get(lane) ?? { busy: false, next: null };
  lanes.set(lane, held);
  if (moment) {
    held.next = null;
    then(moment);
    return;
  }
  held.next = { run, index, then };
  if (!held.busy) serve(held);
}

async function serve(held) {
  held.busy = true;
  while (held.next) {
    const { run, index, then } = held.next;
    held.next = null;
    try {
      const moment = await get(`/api/runs/${encodeURIComponent(run.id)}/moment/${index}`);
      remember(`${run.id}/${index}`, moment);
      if (!held.next) then(moment);
    } catch (problem) {
      // A run that was replaced meanwhile has no weights any more; the last picture stays.
      if (!(problem instanceof Refusal)) throw problem;
      if (!held.next) then(null);
    }
  }
  held.busy = false;
}
