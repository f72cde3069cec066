// Communication with the server: requests, and the event stream.
import { ofTab } from "./storage.js";

let session = null;
let last = 0; // id of the last event seen, so that a new connection misses and repeats nothing
let stream = null;
let creating = null; // the session that is being created
let reachable = true;
const hooks = {
  onEvent: () => {},
  onReach: () => {},
  onSessionLost: () => {},
  address: (used) => `/api/events?session=${used}${last ? `&after=${last}` : ""}`, // of the stream of a session
};

/** A request that the server refuses: a sentence, the setting that it is about, and the status. */
export class RequestError extends Error {
  constructor(message, field, status) {
    super(message);
    this.field = field ?? null;
    this.status = status;
  }
}

export function listen(given) {
  Object.assign(hooks, given);
}

/** Reports a change of whether the server answers; `why` says why it refuses the stream. */
function setReachable(now, why = "") {
  const state = now || why;
  if (state !== reachable) {
    reachable = state;
    hooks.onReach(now, why);
  }
}

async function request(address, options = {}) {
  let answer;
  try {
    answer = await fetch(address, options);
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    setReachable(false);
    throw new RequestError("The server does not answer.", null, 0);
  }
  setReachable(true);
  const body = await answer.json().catch(() => null);
  if (!answer.ok) {
    throw new RequestError(body?.message ?? `The server answered ${answer.status}.`, body?.field, answer.status);
  }
  return body;
}

export const get = (address, signal) => request(address, { signal });

export const post = (address, body) =>
  request(address, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

/** A POST that names the session; when the server has forgotten it, once more with a new one. */
export async function act(address, body = {}) {
  if (session === null) await newSession();
  const used = session;
  try {
    return await post(address, { ...body, session: used });
  } catch (problem) {
    // A 404 may also mean a run; the refusal names which.
    if (!(problem instanceof RequestError) || problem.status !== 404 || problem.field !== "session") throw problem;
    await renewSession(used);
    return await post(address, { ...body, session });
  }
}

/** A new session. Concurrent callers share one: a run and its event stream must have the same. */
function newSession() {
  creating ??= createSession().finally(() => {
    creating = null;
  });
  return creating;
}

async function createSession() {
  const created = (await post("/api/sessions", {})).session;
  const hadSession = session !== null;
  if (hadSession) closeStream();
  session = created;
  last = 0;
  ofTab.write("session", session);
  if (hadSession) hooks.onSessionLost();
}

/** A session instead of `old`, which the server has forgotten, unless there is a newer one already. */
async function renewSession(old) {
  if (session === old) await newSession();
}

/** Restores the session that this tab had before a reload, if it had one. */
export function restoreSession() {
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
    const used = session;
    const answer = await fetch(hooks.address(used), { signal: mine.signal });
    if (answer.status === 404) {
      await renewSession(used);
      if (stream === mine) stream = null;
      return false;
    }
    if (!answer.ok) {
      const body = await answer.json().catch(() => null);
      throw new RequestError(body?.message ?? `The server answered ${answer.status}.`, null, answer.status);
    }
    setReachable(true);
    read(answer.body.getReader(), mine);
    return true;
  } catch (problem) {
    // `fetch` throws a TypeError when the server is unreachable; any other error is a bug of this page.
    if (!mine.signal.aborted) retryLater(mine, problem instanceof RequestError ? problem.message : "");
    if (!(problem instanceof RequestError || problem instanceof TypeError || problem.name === "AbortError")) throw problem;
    return true;
  }
}

function retryLater(mine, why = "") {
  if (stream !== mine) return;
  stream = null;
  setReachable(false, why);
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
    for (const block of blocks) tryHandle(block);
  }
  if (!mine.signal.aborted) retryLater(mine);
}

/** Handles one event. A bug of this page in it is reported, and later events are still handled. */
function tryHandle(block) {
  try {
    handleBlock(block);
  } catch (problem) {
    reportError(problem);
  }
}

function handleBlock(block) {
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("id:")) last = Number(line.slice(3)) || last;
    else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
  }
  if (data.length) hooks.onEvent(JSON.parse(data.join("\n")));
}
