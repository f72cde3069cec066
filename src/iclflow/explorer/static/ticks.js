// Ticks of log axes. Plotly's own powers of ten set style attributes, which the content policy forbids.
import { raised } from "./text.js";

/** 10 to a whole power as text: plain where that is short. */
export function decade(exponent) {
  if (exponent >= -2 && exponent <= 3) return String(Number((10 ** exponent).toPrecision(3)));
  return `10${raised(exponent)}`;
}

/** Ticks for a log axis over `range` (powers of ten), at most about `most` of them. */
export function logTicks(range, most = 6) {
  const [low, high] = range;
  const first = Math.ceil(low - 1e-9);
  const last = Math.floor(high + 1e-9);
  const stride = Math.max(1, Math.ceil((last - first + 1) / most));
  const values = [];
  const texts = [];
  if (last - first >= 1) {
    for (let k = Math.ceil(first / stride) * stride; k <= last; k += stride) {
      values.push(10 ** k);
      texts.push(decade(k));
    }
    return { tickmode: "array", tickvals: values, ticktext: texts };
  }
  // Less than two decades: multiples within them.
  for (let k = first - 1; k <= last + 1; k++) {
    for (const step of high - low < 0.5 ? [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9] : [1, 2, 5]) {
      const value = step * 10 ** k;
      if (Math.log10(value) < low || Math.log10(value) > high) continue;
      values.push(value);
      texts.push(k >= -3 && k <= 4 ? String(Number(value.toPrecision(3))) : `${step}·10${raised(k)}`);
    }
  }
  return { tickmode: "array", tickvals: values, ticktext: texts };
}

/** The range of positive numbers in lists, in powers of ten, with a little room. */
export function logRange(lists) {
  let low = Infinity;
  let high = 0;
  for (const list of lists) {
    for (const value of list) {
      if (value > 0 && Number.isFinite(value)) {
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
    }
  }
  if (!high) return [-1, 1];
  const bottom = Math.log10(Math.max(low, high * 1e-14));
  const pad = 0.05 * (Math.log10(high) - bottom) || 0.1;
  return [bottom - pad, Math.log10(high) + pad];
}
