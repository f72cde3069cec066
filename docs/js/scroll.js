// Tables and formulas that are wider than the page scroll: by the keyboard too.
const mark = () => {
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code"))
    if (box.scrollWidth > box.clientWidth + 1) box.tabIndex = 0;
};
new ResizeObserver(mark).observe(document.body);
mark();
