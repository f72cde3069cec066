// Talking to the server: requests, and the stream of events.

let session = null;
let last = 0; // id of the last event seen, so that a new connection misses and repeats nothing
let stream = null;
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

function reach(now) {
  if (now !== reachable) {
    reachable = now;
    hooks.reach(now);
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
  if (!answer.ok) throw new Refusal(body?.message ?? `The server answered ${answer.status}.`, body?.field, answer.status);
  return body;
}

export const get = (address, signal) => ask(address, { signal });

export const post = (address, body) =>
  ask(address, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

/** A POST that names the session; when the server has forgotten it, once more with a new one. */
export async function act(address, body = {}) {
  if (session === null) await newSession();
  try {
    return await post(address, { ...body, session });
  } catch (problem) {
    if (!(problem instanceof Refusal) || problem.status !== 404 || !(await sessionIsGone())) throw problem;
    await renewSession();
    return await post(address, { ...body, session });
  }
}

async function newSession() {
  session = (await post("/api/sessions", {})).session;
  last = 0;
  sessionStorage.setItem("session", session);
}

async function renewSession() {
  closeStream();
  await newSession();
  hooks.lost();
}

/** Whether the server knows this session no more; a 404 may also mean a run. */
async function sessionIsGone() {
  const stop = new AbortController();
  const answer = await fetch(`/api/events?session=${session}&after=${last}`, { signal: stop.signal });
  stop.abort();
  return answer.status === 404;
}

/** Takes up the session that this tab had before a reload, if it had one. */
export function oldSession() {
  session = sessionStorage.getItem("session");
  return session;
}

export function closeStream() {
  stream?.abort();
  stream = null;
}

/** Opens the stream unless it is open; resolves when it is, with whether the session was known. */
export async function openStream() {
  if (stream) return true;
  if (session === null) await newSession();
  const mine = new AbortController();
  stream = mine;
  try {
    const after = last ? `&after=${last}` : "";
    const answer = await fetch(`/api/events?session=${session}${after}`, { signal: mine.signal });
    if (answer.status === 404) {
      await renewSession();
      return false;
    }
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    reach(true);
    read(answer.body.getReader(), mine);
    return true;
  } catch (problem) {
    if (!mine.signal.aborted) again(mine);
    return true;
  }
}

function again(mine) {
  if (stream !== mine) return;
  stream = null;
  reach(false);
  setTimeout(openStream, 1000);
}

async function read(reader, mine) {
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const blocks = (rest + decoder.decode(value, { stream: true })).replaceAll("\r\n", "\n").split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) take(block);
    }
  } catch (problem) {
    if (mine.signal.aborted) return;
  }
  again(mine);
}

function take(block) {
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("id:")) last = Number(line.slice(3)) || last;
    else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
  }
  if (data.length) hooks.event(JSON.parse(data.join("\n")));
}
