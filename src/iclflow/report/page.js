/* The page works without this: it adds filters, pictures beside claims, keys, and full pages on paper. */
(() => {
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  const byId = (id) => document.getElementById(id);
  const claims = all("article.claim");
  const buttons = all(".count");
  const words = new Map(claims.map((claim) => [claim, claim.textContent.toLowerCase()]));

  function show() {
    const verdicts = buttons.filter((one) => one.getAttribute("aria-pressed") === "true").map((one) => one.dataset.verdict);
    const paper = byId("paper").value;
    const wanted = byId("text").value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const claim of claims) {
      const fits =
        (!verdicts.length || verdicts.includes(claim.dataset.verdict)) &&
        (!paper || claim.dataset.paper === paper) &&
        wanted.every((word) => words.get(claim).includes(word));
      claim.hidden = !fits;
      count += fits;
    }
    for (const link of all(".overview li")) link.hidden = byId(link.dataset.of).hidden;
    for (const part of all(".group, main > section")) {
      if (part.id !== "figures") part.hidden = !part.querySelector("article.claim:not([hidden])");
    }
    byId("none").hidden = count > 0;
    const some = verdicts.length || paper || wanted.length;
    const said = [verdicts.join(" or "), paper, wanted.length ? `“${wanted.join(" ")}”` : ""].filter(Boolean).join(", ");
    byId("shown").textContent = some ? `${count} of ${claims.length} claims are shown: ${said}` : "";
  }

  function clear() {
    for (const one of buttons) one.setAttribute("aria-pressed", "false");
    byId("paper").value = byId("text").value = "";
    show();
  }

  /* A link to a claim that is filtered out shows all claims again. */
  function follow() {
    const claim = byId(decodeURIComponent(location.hash.slice(1)));
    if (!claim?.matches("article.claim")) return;
    if (claim.hidden) clear();
    claim.scrollIntoView();
    claim.focus({ preventScroll: true });
  }

  /* Each picture is in the page once; the small ones beside claims are made when they come into view. */
  const made = new Map();
  function pictureOf(link) {
    const large = document.querySelector(`${link.getAttribute("href")} img`);
    if (!large) return null;
    if (!made.has(large)) made.set(large, fetch(large.src).then((got) => got.blob()).then((blob) => URL.createObjectURL(blob)));
    return { large, address: made.get(large) };
  }
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      const found = pictureOf(target);
      found?.address.then((address) => {
        const small = document.createElement("img");
        small.alt = "";
        small.src = address;
        target.prepend(small);
      });
    }
  }, { rootMargin: "400px" });
  const titled = (link) => link.querySelector("span").textContent;

  function enlarge(link) {
    const found = pictureOf(link);
    if (!found) return;
    const window_ = byId("picture");
    const figure = found.large.closest("figure");
    byId("picture-title").textContent = figure.querySelector("h3").textContent;
    window_.querySelector("img").src = found.large.src;
    window_.querySelector("img").alt = titled(link);
    window_.querySelector("p").textContent = figure.querySelector("figcaption p").textContent;
    window_.showModal();
  }

  const shownClaims = () => claims.filter((claim) => !claim.hidden);
  const current = () => document.activeElement?.closest("article.claim");
  function step(by) {
    const list = shownClaims();
    if (!list.length) return;
    const now = current();
    const top = list.findIndex((claim) => claim.getBoundingClientRect().bottom > 120);
    const at = now ? list.indexOf(now) + by : top;
    const next = list[Math.min(Math.max(at, 0), list.length - 1)];
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "start" });
  }
  const keys = {
    "/": () => byId("text").focus(),
    j: () => step(1),
    k: () => step(-1),
    o: () => {
      const part = current()?.querySelector("details");
      if (part) part.open = !part.open;
    },
    f: () => {
      const link = current()?.querySelector(".picture");
      if (link) enlarge(link);
    },
    "?": () => byId("keys").showModal(),
    Escape: clear,
  };

  document.documentElement.classList.add("live");
  document.querySelector(".choose").hidden = false;
  for (const one of buttons) {
    one.disabled = false;
    one.addEventListener("click", () => {
      one.setAttribute("aria-pressed", String(one.getAttribute("aria-pressed") !== "true"));
      show();
    });
  }
  document.querySelector(".filters").addEventListener("submit", (event) => event.preventDefault());
  byId("text").addEventListener("input", show);
  byId("paper").addEventListener("change", show);
  byId("clear").addEventListener("click", (event) => (event.preventDefault(), clear()));
  byId("help").addEventListener("click", keys["?"]);
  for (const link of all(".picture")) {
    seen.observe(link);
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || !pictureOf(link)) return;
      event.preventDefault();
      enlarge(link);
    });
  }
  document.addEventListener("keydown", (event) => {
    const { target } = event;
    const typing = target.matches("input, select, textarea");
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (typing && event.key !== "Escape") return;
    if (!Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
    if (typing) target.blur();
  });
  addEventListener("hashchange", follow);
  addEventListener("beforeprint", () => all("details").forEach((part) => ((part.dataset.was = part.open), (part.open = true))));
  addEventListener("afterprint", () => all("details").forEach((part) => (part.open = part.dataset.was === "true")));
  if (location.hash) follow();
})();
