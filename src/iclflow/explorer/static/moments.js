// The weights at one moment: fetched when asked for, the latest wish first, a few kept.
import { get, Refusal } from "./api.js";

const KEPT = 80;
const kept = new Map(); // "run/index" -> moment, oldest first
const lanes = new Map(); // one request at a time for each place that shows weights
const asked = new Set(); // wishes whose request is under way

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

/** Forgets the moments of a run from an index on: its points were replaced. Answers under way are old, too. */
export function dropMoments(run, from) {
  for (const wish of asked) if (wish.run === run && wish.index >= from) wish.old = true;
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
  const held = lanes.get(lane) ?? { busy: false, next: null, turn: 0, drawn: 0 };
  lanes.set(lane, held);
  const turn = ++held.turn;
  if (moment || run.withoutWeights) {
    held.next = null;
    held.drawn = turn;
    then(moment);
    return;
  }
  held.next = { run, index, then, turn, old: false };
  if (!held.busy) serve(held);
}

async function serve(held) {
  held.busy = true;
  try {
    while (held.next) {
      const wish = held.next;
      held.next = null;
      const moment = await fetched(wish);
      if (moment && !wish.old) remember(`${wish.run.id}/${wish.index}`, moment);
      // Of a point that was replaced meanwhile the weights are asked for once more.
      if (wish.old && wish.index < wish.run.times.length) held.next ??= { ...wish, old: false };
      // Drawn even where the next wish waits: on a slow machine there always is one. But not after
      // a later one, whose moment was known and is drawn already.
      if (wish.turn < held.drawn) continue;
      held.drawn = wish.turn;
      wish.then(moment);
    }
  } finally {
    held.busy = false;
  }
}

/** The moment of a wish, or null where there are no weights; then the last picture stays. */
async function fetched(wish) {
  asked.add(wish);
  try {
    return await get(`/api/runs/${encodeURIComponent(wish.run.id)}/moment/${wish.index}`);
  } catch (problem) {
    if (!(problem instanceof Refusal)) throw problem;
    // The server has let the run go, or was started again: asking for other moments is of no use.
    if (problem.status === 404) wish.run.withoutWeights = true;
    return null;
  } finally {
    asked.delete(wish);
  }
}
