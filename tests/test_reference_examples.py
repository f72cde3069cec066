"""Every public name has an example in its docstring, and every example prints what it shows."""

import doctest
import importlib.util
import math
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import iclflow as icl

ROOT = Path(__file__).resolve().parent.parent
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w])")
_LARGEST_ERROR = 0.02
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def load_reference():
    """The tool that writes the pages of the reference."""
    spec = importlib.util.spec_from_file_location("reference", ROOT / "tools" / "reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


REFERENCE = load_reference()


class DigitChecker(doctest.OutputChecker):
    """Compares the text as doctest does, and numbers to the digits that are shown.

    One unit of the last digit is allowed: rounding falls one way on one machine, the other way on
    another. But never more than 2 %: with one digit shown, a wrong number would pass.
    """

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        if super().check_output(want, got, optionflags):
            return True
        wanted, found = _NUMBER.findall(want), _NUMBER.findall(got)
        if len(wanted) != len(found):
            return False
        if not all(map(agree, wanted, found)):
            return False
        blank = lambda text: _NUMBER.sub("0", text)
        return super().check_output(blank(want), blank(got), optionflags)


def agree(shown: str, found: str) -> bool:
    """Whether a number is the one that is shown, up to one unit of its last digit.

    Whole numbers have to be the same.
    """
    if not re.search(r"[.eE]", shown):
        return shown == found
    digits, _, exponent = shown.lower().partition("e")
    places = len(digits.partition(".")[2])
    unit = 10.0 ** (int(exponent or 0) - places)
    allowed = min(unit, _LARGEST_ERROR * abs(float(shown))) if float(shown) else unit
    return math.isclose(float(shown), float(found), rel_tol=0, abs_tol=1.001 * allowed)


def run_example(name: str, docstring: str) -> list[str]:
    """What an example prints wrong: the report of each failure."""
    # Fences are Markdown, not Python; lines keep their numbers.
    text = re.sub(r"^[ \t]*```\w*[ \t]*$", "", docstring, flags=re.MULTILINE)
    space = {"icl": icl, "jax": jax, "jnp": jnp, "jr": jr, "np": np, "__name__": "__main__"}
    test = doctest.DocTestParser().get_doctest(text, space, name, None, 0)
    wrong: list[str] = []
    doctest.DocTestRunner(DigitChecker(), verbose=False, optionflags=_FLAGS).run(
        test, out=wrong.append, clear_globs=True
    )
    return wrong


@pytest.mark.parametrize("room", REFERENCE.ROOMS)
def test_every_public_name_has_an_example(room):
    assert REFERENCE.names_without_example(room) == []


@pytest.mark.slow
@pytest.mark.parametrize("room", REFERENCE.ROOMS)
def test_examples_print_what_they_show(room, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong = []
    for name in REFERENCE.examples(room):
        wrong += run_example(f"{room}.{name}", REFERENCE.documentation(room, name))
    assert wrong == [], "\n".join(wrong)


def test_numbers_are_compared_to_the_digits_that_are_shown():
    checker = DigitChecker()
    check = lambda want, got: checker.check_output(want, got, _FLAGS)
    assert check("[0.123, 4]\n", "[0.1239, 4]\n") and not check("[0.123]\n", "[0.1251]\n")
    assert check("1.20e-05\n", "1.21e-05\n") and not check("1.2e-05\n", "1.4e-05\n")
    assert not check("[1.]\n", "[1.5]\n") and check("0.\n", "-0.\n")
    assert not check("3 heads\n", "4 heads\n") and not check("a 0.5\n", "b 0.5\n")


def test_an_example_that_prints_another_number_is_reported():
    assert run_example("right", "```pycon\n>>> round(1 / 3, 3)\n0.333\n```") == []
    assert run_example("wrong", "```pycon\n>>> round(1 / 3, 3)\n0.335\n```") != []
    assert run_example("raises", "```pycon\n>>> 1 / 0\n0\n```") != []
