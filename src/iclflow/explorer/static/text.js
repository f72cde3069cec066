// Numbers and names as a reader wants them.

const SUPERSCRIPTS = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

/** A whole exponent in small raised digits. */
export const raised = (exponent) => [...String(exponent)].map((sign) => SUPERSCRIPTS[sign]).join("");

const NOTHING = 1e-30; // what a start at zero leaves after rounding; no measurement here is that small

/**
 * A number in about `digits` significant digits, without needless zeros.
 *
 * `least` is the size below which it is zero up to rounding, beside the numbers that it belongs to.
 */
export function number(value, digits = 3, least = NOTHING) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (typeof value !== "number") return String(value);
  const size = Math.abs(value);
  if (size < least) return "0";
  if (Number.isInteger(value) && size < 1e6) return String(value).replace("-", "−");
  if (size >= 1e5 || size < 1e-3) {
    const [head, power] = value.toExponential(digits - 1).split("e");
    const shown = raised(Number(power));
    const front = head.replace(/\.?0+$/, "").replace("-", "−");
    return front === "1" ? `10${shown}` : `${front}·10${shown}`;
  }
  return String(Number(value.toPrecision(digits))).replace("-", "−");
}

/** A relative distance in per cent: closer than a model in float32 can repeat an estimator, no digits mean anything. */
export const percent = (distance) => (distance < 1e-4 ? "below 0.01 %" : `${number(100 * distance)} %`);

/** A number as a field shows it: exact, and readable again by `Number`. */
export function exact(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "number") return String(value);
  const size = Math.abs(value);
  if (size && (size < 1e-4 || size >= 1e7)) return value.toExponential().replace("e+", "e");
  return String(value);
}

/** Any setting as one short line. */
export function setting(value) {
  if (value === null || value === undefined) return "default";
  if (value === true) return "yes";
  if (value === false) return "no";
  if (Array.isArray(value)) return value.length > 12 ? `${value.length} numbers` : `[${value.map(setting).join(", ")}]`;
  if (typeof value === "number") return exact(value);
  return String(value).replaceAll("_", " ");
}

/** `max_steps` as "Max steps". */
export function title(name) {
  const words = name.replaceAll("_", " ");
  return words[0].toUpperCase() + words.slice(1);
}

export const seconds = (value) => (value < 10 ? `${value.toFixed(1)} s` : `${Math.round(value)} s`);

export const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
