// Talking to the server: requests, and the stream of events.
import { ofTab } from "./storage.js";

let session = null;
let last = 0; // id of the last event seen, so that a new connection misses and repeats nothing
let stream = null;
let making = null; // the session that is being made
let reachable = true;
const hooks = { event: () => {}, reach: () => {}, lost: () => {} };

/** What the server refuses: a sentence, the field it names, and the status. */
export class Refusal extends Error {
  constructor(message, field, status) {
    super(message);
    this.field = field ?? null;
    this.status = status;
  }
}

export function listen(given) {
  Object.assign(hooks, given);
}

/** Says whether the server answers, and if it does not let the page listen, why. */
function reach(now, why = "") {
  const state = now || why;
  if (state !== reachable) {
    reachable = state;
    hooks.reach(now, why);
  }
}

async function ask(address, options = {}) {
  let answer;
  try {
    answer = await fetch(address, options);
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    reach(false);
    throw new Refusal("The server does not answer.", null, 0);
  }
  reach(true);
  const body = await answer.json().catch(() => null);
  if (!answer.ok) {
    throw new Refusal(body?.message ?? `The server answered ${answer.status}.`, body?.field, answer.status);
  }
  return body;
}

export const get = (address, signal) => ask(address, { signal });

export const post = (address, body) =>
  ask(address, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

/** A POST that names the session; when the server has forgotten it, once more with a new one. */
export async function act(address, body = {}) {
  if (session === null) await newSession();
  const asked = session;
  try {
    return await post(address, { ...body, session: asked });
  } catch (problem) {
    // A 404 may also mean a run; the refusal names which.
    if (!(problem instanceof Refusal) || problem.status !== 404 || problem.field !== "session") throw problem;
    await renewSession(asked);
    return await post(address, { ...body, session });
  }
}

/** A new session; whoever asks while one is made gets that one, or a run and its stream would part. */
function newSession() {
  making ??= makeSession().finally(() => {
    making = null;
  });
  return making;
}

async function makeSession() {
  const made = (await post("/api/sessions", {})).session;
  const lost = session !== null;
  if (lost) closeStream();
  session = made;
  last = 0;
  ofTab.write("session", session);
  if (lost) hooks.lost();
}

/** A session in place of `old`, which the server has forgotten, unless there is one already. */
async function renewSession(old) {
  if (session === old) await newSession();
}

/** Takes up the session that this tab had before a reload, if it had one. */
export function oldSession() {
  session = ofTab.read("session");
  return session;
}

export function closeStream() {
  stream?.abort();
  stream = null;
}

/** Opens the stream unless it is open; resolves when it is, with whether the session was known. */
export async function openStream() {
  if (stream) return true;
  const mine = new AbortController();
  stream = mine;
  try {
    if (session === null) await newSession();
    const asked = session;
    const after = last ? `&after=${last}` : "";
    const answer = await fetch(`/api/events?session=${asked}${after}`, { signal: mine.signal });
    if (answer.status === 404) {
      await renewSession(asked);
      if (stream === mine) stream = null;
      return false;
    }
    if (!answer.ok) {
      const body = await answer.json().catch(() => null);
      throw new Refusal(body?.message ?? `The server answered ${answer.status}.`, null, answer.status);
    }
    reach(true);
    read(answer.body.getReader(), mine);
    return true;
  } catch (problem) {
    // `fetch` says with a TypeError that nobody answers; anything else is a mistake of this page.
    if (!mine.signal.aborted) again(mine, problem instanceof Refusal ? problem.message : "");
    if (!(problem instanceof Refusal || problem instanceof TypeError || problem.name === "AbortError")) throw problem;
    return true;
  }
}

function again(mine, why = "") {
  if (stream !== mine) return;
  stream = null;
  reach(false, why);
  setTimeout(openStream, 1000);
}

async function read(reader, mine) {
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch {
      break; // the connection is gone, or this page closed it
    }
    if (part.done || stream !== mine) break;
    const text = rest + decoder.decode(part.value, { stream: true });
    const blocks = text.replaceAll("\r\n", "\n").split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) attempt(block);
  }
  if (!mine.signal.aborted) again(mine);
}

/** Takes one event. A mistake of this page in it is shown as one, and the events after it still come. */
function attempt(block) {
  try {
    take(block);
  } catch (problem) {
    reportError(problem);
  }
}

function take(block) {
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("id:")) last = Number(line.slice(3)) || last;
    else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
  }
  if (data.length) hooks.event(JSON.parse(data.join("\n")));
}
