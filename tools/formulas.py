"""Formulas of the documentation as MathML and as indices: an extension of Python-Markdown.

Pages are written in plain characters, so that they can be read anywhere: `λ_d² [1 + 1/N]⁻¹`. An
indented block with such characters becomes one line of MathML for each of its lines, with the
number of the equation at the right; in running text `x_q` gets its index. Browsers draw MathML
themselves: nothing is loaded.
"""

import html
import re
import xml.etree.ElementTree as etree
from collections.abc import Iterator

from markdown import Markdown
from markdown.blockprocessors import BlockProcessor
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor

# Dots, bars and tildes over the letter before them.
_OVER = "\u0300-\u036f"
_LETTER = f"(?:[A-Za-zΑ-Ωα-ωϱℓ∂∇ẋẏżȧẇḡ][{_OVER}]*′*)"
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋ₙₘₖⱼᵢₗ", "0123456789+−nmkjil"))
_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ᵀᵖᵏᵐⁿᵗʳ⁽⁾", "0123456789+−Tpkmntr()"))
# An index ends where the next letter has an index of its own: λ_dC_d, x_hz_h, Σ_hk, x_q,e.
_INDEX = r"_(?:\{[^}]*\}|[a-zℓ]+,[a-z](?![\w])|[a-zℓ]+(?![a-zℓ_])|[A-Za-zα-ωℓ0-9½])"
# The last of several letters: Ax_q, qf_af_e.
_IN_PRODUCT = r"[A-Za-z](?=_[a-z](?:(?![a-z0-9_])|[A-Za-z]_[a-z](?![A-Za-z0-9_])))"
_POWER = r"\^(?:\{[^}]*\}|−?[A-Za-z0-9½⅓⅙]|\*)"
_BELOW, _ABOVE = f"[{''.join(_SUBSCRIPTS)}]+", f"[{''.join(_SUPERSCRIPTS)}*]+"
_SCRIPT = re.compile(f"{_INDEX}|{_POWER}|{_BELOW}|{_ABOVE}")
_WORDS = r"arctan|sinh|cosh|sign|sgn|vec|Cov|cov|exp|log|ln|tr|Pf|[A-Za-z]{4,}:?"
_TOKEN = re.compile(
    rf"(?P<word>(?:{_WORDS})(?![_\w]))|(?P<letter>{_LETTER})"
    r"|(?P<number>\d+(?:\.\d+)?|[½⅓⅙¼])|(?P<wide> {2,})|(?P<space> )|(?P<sign>.)"
)
_NUMBER = re.compile(r"^(.*?)\s{2,}(\(\d+\))\s*$")
# Signs that carry an index: closing brackets, as in (A_ε)_jk, and sums.
_CARRYING = ")]}⟩‖|ΣΠ∫∬"


def line_as_mathml(line: str) -> str:
    """One line of a formula."""
    numbered = _NUMBER.match(line)
    body, number = numbered.groups() if numbered else (line.strip(), "")
    label = f'<span class="equation">{number}</span>' if number else ""
    row = "".join(_elements(body.strip()))
    return f'<div class="line"><math><mrow>{row}</mrow></math>{label}</div>'


def _elements(text: str) -> Iterator[str]:
    """The elements of a formula, from left to right."""
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        assert token is not None and token.lastgroup is not None
        at, base = token.end(), _element(token.lastgroup, token[0])
        below, above = "", ""
        carries = token.lastgroup in ("letter", "number", "word") or token[0] in _CARRYING
        while carries and (script := _SCRIPT.match(text, at)):
            at, low, high = script.end(), *_parts(script[0])
            below, above = below + low, above + high
        yield _scripted(base, below, above)


def _parts(script: str) -> tuple[str, str]:
    """What stands below and above, written as `_x`, `^x`, or in small characters."""
    if script[0] == "_":
        return script[1:].strip("{}"), ""
    if script[0] == "^":
        return "", script[1:].strip("{}")
    if script[0] in _SUBSCRIPTS:
        return "".join(_SUBSCRIPTS[each] for each in script), ""
    return "", "".join(_SUPERSCRIPTS.get(each, each) for each in script)


def _scripted(base: str, below: str, above: str) -> str:
    row = lambda text: f"<mrow>{''.join(_elements(text))}</mrow>"
    if below and above:
        return f"<msubsup>{base}{row(below)}{row(above)}</msubsup>"
    if below:
        return f"<msub>{base}{row(below)}</msub>"
    return f"<msup>{base}{row(above)}</msup>" if above else base


def _element(kind: str, text: str) -> str:
    escaped = html.escape(text)
    match kind:
        case "wide":
            return '<mspace width="2em"/>'
        case "space":
            return '<mspace width="0.2em"/>'
        case "number":
            return f"<mn>{escaped}</mn>"
        case "letter":
            # Not the letters of the mathematical alphabets, which few fonts have.
            slanted = "" if re.match("[Α-Ω∂∇]", text) else ' class="letter"'
            return f'<mi mathvariant="normal"{slanted}>{escaped}</mi>'
        case "word":
            return f'<mi mathvariant="normal">{escaped}</mi>'
    # Brackets and bars of the height of the line, as they are written.
    return f'<mo stretchy="false" lspace="0" rspace="0">{escaped}</mo>'


def is_formula(block: str) -> bool:
    """Whether an indented block is a formula: it has some character that no program has."""
    lines = block.splitlines()
    indented = all(line.startswith("    ") or not line.strip() for line in lines)
    return indented and bool(re.search("[Α-Ωα-ω⟨‖∫√²₀-₉ᵀ½−]", block))


class _Blocks(BlockProcessor):
    """Indented formulas."""

    def test(self, parent: etree.Element, block: str) -> bool:
        return is_formula(block)

    def run(self, parent: etree.Element, blocks: list[str]) -> bool:
        lines = [line for line in blocks.pop(0).splitlines() if line.strip()]
        text = "".join(map(line_as_mathml, lines))
        # Reached by the keyboard too, since long lines are scrolled.
        made = f'<div class="formula" tabindex="0" role="group" aria-label="formula">{text}</div>'
        etree.SubElement(parent, "p").text = self.parser.md.htmlStash.store(made)
        return True


class _Indices(InlineProcessor):
    """Indices and powers in running text, where they are written with signs: `x_q`, `e^{−t}`."""

    def handleMatch(self, m: re.Match[str], data: str):  # noqa: N802, a name of Python-Markdown
        made = etree.Element("span")
        made.text = m[1]
        for script in _SCRIPT.finditer(m[2]):
            low, high = _parts(script[0])
            etree.SubElement(made, "sub" if low else "sup").text = low or high
        return made, m.start(0), m.end(0)


class Formulas(Extension):
    """The extension."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802, a name of Python-Markdown
        # Before blocks of code.
        md.parser.blockprocessors.register(_Blocks(md.parser), "formulas", 85)
        # After spans of code and links. Powers such as ² alone stay the characters that they are,
        # and so do names of files and functions, in which an index would be longer.
        scripts = f"(?:{_BELOW}|{_ABOVE})*(?:{_INDEX}|{_POWER})(?:{_SCRIPT.pattern})*"
        pattern = rf"((?<![A-Za-z]){_LETTER}|[α-ω)]|{_IN_PRODUCT})({scripts})"
        md.inlinePatterns.register(_Indices(pattern, md), "indices", 150)


def makeExtension(**options: object) -> Formulas:  # noqa: N802, a name of Python-Markdown
    """What Python-Markdown calls."""
    return Formulas(**options)
