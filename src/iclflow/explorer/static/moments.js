// The weights at one moment: fetched on demand, the latest request first, and cached.
import { get, RequestError } from "./api.js";

const MOST_CACHED = 80;
const cache = new Map(); // "run/index" -> moment, oldest first
const lanes = new Map(); // one request at a time for each place that shows weights
const pending = new Set(); // requests under way

function remember(key, moment) {
  cache.delete(key);
  cache.set(key, moment);
  if (cache.size > MOST_CACHED) cache.delete(cache.keys().next().value);
}

export function cachedMoment(run, index) {
  const key = `${run.id}/${index}`;
  const moment = cache.get(key);
  if (moment) remember(key, moment);
  return moment ?? null;
}

/** Drops the moments of a run from an index on: its points were replaced. Answers under way are outdated, too. */
export function dropMoments(run, from) {
  for (const request of pending) if (request.run === run && request.index >= from) request.outdated = true;
  for (const key of [...cache.keys()]) {
    const [id, index] = key.split("/");
    if (id === run.id && Number(index) >= from) cache.delete(key);
  }
}

/**
 * Fetches a moment and calls `then(moment)`. While a request of the same lane is under way only the latest
 * one waits, so that dragging never builds a queue.
 */
export function requestMoment(lane, run, index, then) {
  const moment = cachedMoment(run, index);
  const queue = lanes.get(lane) ?? { busy: false, next: null, turn: 0, drawn: 0 };
  lanes.set(lane, queue);
  const turn = ++queue.turn;
  if (moment || run.withoutWeights) {
    queue.next = null;
    queue.drawn = turn;
    then(moment);
    return;
  }
  queue.next = { run, index, then, turn, outdated: false };
  if (!queue.busy) serve(queue);
}

async function serve(queue) {
  queue.busy = true;
  try {
    while (queue.next) {
      const request = queue.next;
      queue.next = null;
      const moment = await fetchMoment(request);
      if (moment && !request.outdated) remember(`${request.run.id}/${request.index}`, moment);
      // A point was replaced meanwhile: its weights are fetched once more.
      if (request.outdated && request.index < request.run.times.length) queue.next ??= { ...request, outdated: false };
      // Drawn even if another request waits: on a slow machine one always does. But not after a
      // later one, whose moment was cached and is drawn already.
      if (request.turn < queue.drawn) continue;
      queue.drawn = request.turn;
      request.then(moment);
    }
  } finally {
    queue.busy = false;
  }
}

/** The moment of a request, or null where there are no weights; then the last picture stays. */
async function fetchMoment(request) {
  pending.add(request);
  try {
    return await get(`/api/runs/${encodeURIComponent(request.run.id)}/moment/${request.index}`);
  } catch (problem) {
    if (!(problem instanceof RequestError)) throw problem;
    // The server has dropped the run, or was restarted: it has no other moments either.
    if (problem.status === 404) request.run.withoutWeights = true;
    return null;
  } finally {
    pending.delete(request);
  }
}
