// What this page holds of a training: columns of numbers, by look.

const NUMBERS = ["step", "seconds", "loss", "loss_error", "excess", "excess_error"];

/** An empty record. */
export function newRecord() {
  return {
    epoch: "",
    turns: 0, // changes of the record that this page has seen, other than looks at its end
    numbers: Object.fromEntries(NUMBERS.map((name) => [name, []])),
    distances: [], // by label, then by the name of the estimator
    look: null, // everything about the last look
    labels: [], // sentences, by label
    named: [], // by label, the estimators that were the nearest, the last one first
    plateaus: "",
    problems: [],
    damage: null,
    verdicts: { step: null, claims: [], others: 0 }, // of claims, and up to which step they were checked
  };
}

/** How much of the training this page has, as the address of the stream says it. */
export const have = (record) => (record.epoch ? `${record.epoch}.${record.turns}.${count(record)}` : "");

export const count = (record) => record.numbers.step.length;

/** Takes one event into the record; returns what has changed. */
export function apply(record, event) {
  switch (event.type) {
    case "start":
      Object.assign(record, newRecord(), { epoch: event.epoch });
      return "all";
    case "turn":
      record.turns = event.count;
      cut(record, event.kept);
      return "turn";
    case "points":
      if (count(record) !== event.from) return "gap"; // events were lost: the page must ask again
      append(record, event);
      return "points";
    case "look":
      record.look = event.look;
      return "look";
    case "words":
      return takeWords(record, event);
    case "problems":
      record.problems = event.problems;
      record.damage = event.damage;
      return "problems";
    case "verdicts":
      record.verdicts = { step: event.step, claims: event.claims, others: event.others };
      return "verdicts";
    default:
      return "";
  }
}

function takeWords(record, event) {
  const same = JSON.stringify(record.named) === JSON.stringify(event.named);
  record.labels = event.labels;
  record.named = event.named;
  record.plateaus = event.plateaus;
  return same ? "words" : "named";
}

function cut(record, kept) {
  const columns = [...Object.values(record.numbers), ...record.distances.flatMap((known) => [...known.values()])];
  for (const column of columns) if (column.length > kept) column.length = kept;
}

function append(record, event) {
  for (const name of NUMBERS) extend(record.numbers[name], event[name]);
  const whole = count(record);
  event.distances.forEach((known, label) => {
    record.distances[label] ??= new Map();
    for (const [name, values] of Object.entries(known)) {
      if (!record.distances[label].has(name)) record.distances[label].set(name, new Array(event.from).fill(null));
      extend(record.distances[label].get(name), values);
    }
  });
  for (const known of record.distances) {
    for (const column of known.values()) while (column.length < whole) column.push(null);
  }
}

function extend(column, values) {
  for (const value of values) column.push(value);
}

/** The estimators of which one was the nearest at some look; then those that came closest. */
export function nearestNames(record, label, most) {
  const found = [...(record.distances[label] ?? new Map())].map(([name, column]) => {
    let least = Infinity;
    for (const value of column) if (value !== null && value < least) least = value;
    return { name, least };
  });
  const closest = found.sort((a, b) => a.least - b.least).map(({ name }) => name);
  const known = new Set(closest);
  const nearest = (record.named[label] ?? []).filter((name) => known.has(name));
  return [...new Set([...nearest, ...closest])].slice(0, most);
}

/**
 * The indices of a curve that a plot of so many pixels can show: in each pixel its first, lowest, highest and last point.
 * `low` and `high` are shares of the axis, from `place`.
 */
export function thin(values, place, pixels) {
  const kept = [];
  let bucket = -Infinity;
  let group = null;
  const close = () => {
    if (group) kept.push(...[...new Set([group.first, group.least, group.most, group.last])].sort((a, b) => a - b));
  };
  for (let k = 0; k < values.length; k++) {
    const share = place(k);
    if (!(share >= -0.05 && share <= 1.05)) continue;
    const at = Math.floor(share * pixels);
    if (at !== bucket) {
      close();
      bucket = at;
      group = { first: k, least: k, most: k, last: k };
    }
    if (values[k] < values[group.least]) group.least = k;
    if (values[k] > values[group.most]) group.most = k;
    group.last = k;
  }
  close();
  return kept;
}
