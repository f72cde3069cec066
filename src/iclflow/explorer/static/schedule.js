// Drawing, spread over frames: each drawing has a shortest interval, and a frame ends when its time is used up.

const FRAME = 20; // ms of drawing in one frame
const drawings = new Map();
let scheduled = false;
let waiting = [];

/** Registers a drawing under a name; it runs after `mark`, at most every `every` ms, low ranks first. */
export function drawing(name, draw, every = 125, rank = 2) {
  // A first drawing counts as slow: creating a plot costs more than updating it.
  drawings.set(name, { draw, every, rank, last: -Infinity, cost: FRAME, dirty: false });
}

export function forgetDrawing(name) {
  drawings.delete(name);
}

export function mark(...names) {
  for (const name of names) {
    const found = drawings.get(name);
    if (found) found.dirty = true;
  }
  scheduleFrame();
}

/** Calls `then` once nothing is left to draw. */
export function whenDrawn(then) {
  waiting.push(then);
  scheduleFrame();
}

function scheduleFrame() {
  if (!scheduled) {
    scheduled = true;
    requestAnimationFrame(frame);
  }
}

function frame() {
  scheduled = false;
  const begin = performance.now();
  let left = false;
  let slow = false; // whether this frame has made a slow drawing already
  // Quick ones come first, then the loss; among the panels the one that waited longest, so that none starves.
  const due = [...drawings.values()].filter((one) => one.dirty);
  due.sort((a, b) => Number(a.every >= 100) - Number(b.every >= 100) || a.rank - b.rank || a.last - b.last);
  for (const one of due) {
    const now = performance.now();
    // A drawing that is slow on this machine leaves it free for at least three times as long.
    const early = now - one.last < Math.max(one.every, 3 * one.cost);
    const full = one.every >= 100 && slow && now - begin + one.cost > FRAME;
    if (early || full) {
      left = true;
      continue;
    }
    one.dirty = false;
    one.draw();
    one.last = performance.now();
    one.cost = one.last - now;
    slow ||= one.every >= 100;
  }
  if (left || [...drawings.values()].some((one) => one.dirty)) scheduleFrame();
  else if (waiting.length) {
    const done = waiting;
    waiting = [];
    for (const then of done) then();
  }
}
