// Names of horizontal lines in the right margin, moved apart so that none covers another.

const GAP = 14; // px from one name to the next

/** Pixel positions at least GAP apart and as near as possible to the wanted ones, from the top down. */
export function spread(wanted, height) {
  const order = wanted.map((at, k) => ({ at, k })).sort((a, b) => a.at - b.at);
  // Names that would touch are put into one group, centred where its members want to be.
  const groups = [];
  for (const { at, k } of order) {
    groups.push({ members: [k], centre: at });
    while (groups.length > 1) {
      const below = groups[groups.length - 1];
      const above = groups[groups.length - 2];
      const needed = (GAP * (above.members.length + below.members.length)) / 2;
      if (below.centre - above.centre >= needed) break;
      const count = above.members.length + below.members.length;
      const centre = (above.centre * above.members.length + below.centre * below.members.length) / count;
      groups.splice(-2, 2, { members: [...above.members, ...below.members], centre });
    }
  }
  const placed = new Array(wanted.length);
  for (const { members, centre } of groups) {
    const half = (GAP * (members.length - 1)) / 2;
    const inside = Math.min(Math.max(centre, half + 4), Math.max(height - half - 4, half + 4));
    members.forEach((k, place) => {
      placed[k] = inside - half + GAP * place;
    });
  }
  return placed;
}

/** Plotly annotations for `lines` ({y, text, kind}) of a plot with this range and height. */
export function labels(lines, range, height, log, colours, narrow) {
  const inside = [];
  for (const line of lines) {
    if (log && line.y <= 0) continue;
    const value = log ? Math.log10(line.y) : line.y;
    const share = (range[1] - value) / (range[1] - range[0]);
    if (share >= 0 && share <= 1) inside.push({ ...line, value, pixel: share * height });
  }
  const fitting = inside.slice(0, Math.floor(height / GAP));
  const placed = spread(fitting.map((line) => line.pixel), height);
  const limit = narrow ? 14 : 26;
  const tint = { level: colours.quiet, reference: colours.reference, floor: colours.text };
  return fitting.map((line, k) => ({
    xref: "paper",
    x: 1,
    yref: "y",
    y: line.value,
    ax: narrow ? 8 : 14,
    ay: placed[k] - line.pixel,
    showarrow: true,
    arrowhead: 0,
    arrowwidth: 0.8,
    arrowcolor: tint[line.kind],
    xanchor: "left",
    align: "left",
    text: shorten(line.text, limit),
    font: { size: narrow ? 10 : 11, color: tint[line.kind] },
    borderpad: 0,
    standoff: 0,
  }));
}

/** Cuts a long name in its middle, so that its number at the end stays. */
function shorten(text, limit) {
  const clean = text.replaceAll("<", "‹");
  if (clean.length <= limit) return clean;
  const number = clean.slice(clean.lastIndexOf(" "));
  return `${clean.slice(0, limit - number.length - 1).trimEnd()}…${number}`;
}
