"""What a page in the browser lacks for readers who do not see it, or see it badly.

The rules of axe that matter for pages of text: names, headings, labels, contrast. Each finding is a
sentence that names the element.
"""

from typing import Any

# WCAG 2, level AA: 4.5 for text, 3 for large text (24 px, or bold from 18.66 px on).
_FINDINGS = r"""
() => {
  const found = [];
  const seen = (node) => node.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true });
  const say = (node, words) => found.push(`${words}: ${node.outerHTML.slice(0, 160)}`);
  const name = (node) => (node.getAttribute("aria-label") ?? "") + (node.title ?? "")
    + (node.textContent ?? "").trim()
    + [...node.querySelectorAll("img[alt], [aria-label], title")].map(
        (each) => each.alt || each.ariaLabel || each.textContent).join("")
    + (node.getAttribute("aria-labelledby") ?? "");
  if (!document.documentElement.lang) found.push("the page has no language");
  if (!document.title.trim()) found.push("the page has no title");
  for (const image of document.images)
    if (!(image.getAttribute("alt") ?? "").trim()) say(image, "an image without alt text");
  for (const image of document.images)
    if (image.complete && image.naturalWidth === 0) say(image, "an image that does not load");
  for (const node of document.querySelectorAll("a[href], button, summary, [role=button]"))
    if (seen(node) && !name(node).trim()) say(node, "a link or button without a name");
  for (const node of document.querySelectorAll("input:not([type=hidden]), select, textarea"))
    if (seen(node) && !name(node).trim() && !node.labels?.length && !node.placeholder)
      say(node, "a field without a label");
  const ids = [...document.querySelectorAll("main [id]")].map((node) => node.id);
  for (const id of new Set(ids.filter((id, at) => ids.indexOf(id) !== at)))
    found.push(`the id "${id}" is used twice`);
  const heads = [...document.querySelectorAll("main :is(h1, h2, h3, h4, h5, h6)")].filter(seen);
  const level = (node) => Number(node.tagName[1]);
  if (heads.filter((node) => level(node) === 1).length !== 1) found.push("not one h1");
  heads.forEach((node, at) => {
    if (at > 0 && level(node) > level(heads[at - 1]) + 1) say(node, "a heading that skips a level");
  });
  for (const table of document.querySelectorAll("main table"))
    if (!table.querySelector("th")) say(table, "a table without header cells");
  const boxes = "main pre, main .formula, main .md-typeset__scrollwrap";
  for (const box of document.querySelectorAll(boxes))
    if (box.scrollWidth > box.clientWidth + 1 && box.tabIndex < 0
        && !box.querySelector("a, button, [tabindex='0']"))
      say(box, "a part that scrolls and cannot be reached by the keyboard");

  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  const colour = (text) => {
    pen.clearRect(0, 0, 1, 1); pen.fillStyle = text; pen.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255]; };
  const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3]));
  const ground = (node) => {
    const layers = [];
    for (let each = node; each; each = each.parentElement)
      layers.push(colour(getComputedStyle(each).backgroundColor));
    return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255]);
  };
  const light = (rgb) => rgb.map((each) => each / 255)
    .map((each) => each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
    .reduce((sum, each, at) => sum + each * [0.2126, 0.7152, 0.0722][at], 0);
  const reported = new Set();
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !seen(node)) continue;
    if (node.closest("svg, script, style")) continue;
    const style = getComputedStyle(node), under = ground(node);
    const ink = light(over(colour(style.color), under)), paper = light(under);
    const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    const size = parseFloat(style.fontSize), bold = Number(style.fontWeight) >= 700;
    const least = size >= 24 || (bold && size >= 18.66) ? 3 : 4.5;
    const kind = `${style.color} on ${under.map(Math.round)}`;
    if (ratio < least && !reported.has(kind)) {
      reported.add(kind);
      say(node, `contrast ${ratio.toFixed(2)} (${kind})`);
    }
  }
  return found;
}
"""


def findings(page: Any) -> list[str]:
    """What is wrong with the page that is open."""
    return page.evaluate(_FINDINGS)
