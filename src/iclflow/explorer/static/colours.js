// A diverging colour map that colour-blind readers can read: blue for negative, orange for positive.

const NEGATIVE = [[0, 50, 100], [0, 114, 178], [126, 180, 217]];
const POSITIVE = [[110, 44, 0], [213, 94, 0], [240, 176, 120]];
const MIDDLE = { light: [247, 247, 247], dark: [38, 42, 48] };

const mix = (from, to, share) => from.map((value, k) => Math.round(value + share * (to[k] - value)));

/** The colour of `value` on a scale from -`scale` to `scale`, as [r, g, b]. */
export function diverging(value, scale, dark) {
  const middle = dark ? MIDDLE.dark : MIDDLE.light;
  if (!Number.isFinite(value)) return dark ? [90, 90, 90] : [200, 200, 200];
  const share = scale > 0 ? Math.min(1, Math.abs(value) / scale) : 0;
  const [deep, full, pale] = value < 0 ? NEGATIVE : POSITIVE;
  if (dark) {
    // On a dark ground the strongest values are the brightest.
    return share < 0.5 ? mix(middle, full, share * 2) : mix(full, pale, share * 2 - 1);
  }
  if (share < 0.4) return mix(middle, pale, share / 0.4);
  return share < 0.8 ? mix(pale, full, (share - 0.4) / 0.4) : mix(full, deep, (share - 0.8) / 0.2);
}

// Cividis: from dark blue to yellow, even in brightness, for numbers without a middle.
export const CIVIDIS = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"];

/** Black or white, whichever can be read on `colour`. */
export function inkOn([red, green, blue]) {
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#111" : "#fff";
}

const BADGES = { positive: "b5", negative: "b1", dummy: "bx", idle: "bx" };

/** The badge class of a role; numbered roles ("component 2", "task 1") go through the colours. */
export function badge(role) {
  if (!role) return "bx";
  if (BADGES[role]) return BADGES[role];
  const count = Number(/(\d+)/.exec(role)?.[1]);
  if (count) return `b${((count - 1) % 7) + 1}`;
  return /dummy|idle|dead|none|small/.test(role) ? "bx" : "b4";
}
