"""Formulas in plain characters become MathML and indices, and nothing else does."""

import re
import sys
from pathlib import Path

import markdown
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
import formulas


def convert(text: str) -> str:
    return markdown.Markdown(extensions=[formulas.makeExtension()]).convert(text)


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("x_q", "<span>x<sub>q</sub></span>"),
        ("λ_dC_d", "<span>λ<sub>d</sub></span><span>C<sub>d</sub></span>"),
        ("e_de_dᵀ", "<span>e<sub>d</sub></span><span>e<sub>d</sub><sup>T</sup></span>"),
        ("Σ_hk μ_hμ_k", "<span>Σ<sub>hk</sub></span>"),
        ("θ_abe x_q,e", "<span>x<sub>q,e</sub></span>"),
        ("(x_q,y_q)", "(<span>x<sub>q</sub></span>,<span>y<sub>q</sub></span>)"),
        ("e^{−rt}", "<span>e<sup>−rt</sup></span>"),
        ("(A_ε)_jk", "<span>)<sub>jk</sub></span>"),
        ("L_eff", "<span>L<sub>eff</sub></span>"),
        ("2κ_i", "2<span>κ<sub>i</sub></span>"),
        ("Ax_q", "A<span>x<sub>q</sub></span>"),
        ("RW_hRᵀ", "R<span>W<sub>h</sub></span>Rᵀ"),
    ],
)
def test_an_index_is_set_as_one(typed, shown):
    assert shown in convert(typed)


@pytest.mark.parametrize(
    "text", ["`x_q`", "plot_loss", "random_gpt2.py", "attention_in_jax", "λ² stays", "2501.16265"]
)
def test_names_and_code_stay_as_they_are(text):
    assert "<sub>" not in convert(text) and "<sup>" not in convert(text)


def test_an_indented_formula_is_mathml_with_its_number():
    made = convert("With\n\n    y_d² = λ_d [1 + 1/N]⁻¹,          (22)\n    t_½ = 0\n\nso")
    assert made.count("<math>") == 2 and made.count('<span class="equation">(22)</span>') == 1
    plain = re.sub(r"<[^>]+>", "", made)
    assert "yd2=λd[1+1/N]−1," in plain and "t½=0" in plain
    assert "<msubsup><mi" in made and "(22)" not in re.findall(r"<math>.*?</math>", made)[0]


def test_an_indented_program_is_none():
    assert "<math>" not in convert("Run\n\n    print(x_q)\n    y = 2\n")
