"""Errors about input: the field that cannot work and why, and questions without an answer."""

from typing import Any, overload

# The most characters of a value in a sentence.
_LONGEST_VALUE = 60


class Refusal(ValueError):
    """Raised by theory and analysis where a question has no answer; the text says why.

    Callers with many questions, such as the claims on a run, treat it as an answer. Any other
    `ValueError`, such as NumPy's about shapes, is a bug.

    **Example:**

    ```pycon
    >>> from iclflow.errors import Refusal
    >>> issubclass(Refusal, ValueError)
    True
    ```
    """


class BeyondLimit(Refusal):
    """Raised where a formula holds only in a limit, such as small weights, that is too far away.

    **Example:**

    ```pycon
    >>> from iclflow.errors import BeyondLimit, Refusal
    >>> issubclass(BeyondLimit, Refusal)
    True
    ```
    """


class InputError(ValueError):
    """Input that cannot work. As text it is one full sentence.

    `InputError("noise", -1, "must not be negative")` reads "`noise` = -1: must not be negative."
    Where no field is to blame, such as for a file that is missing: `InputError(sentence)`.

    **Fields:**

    - `field`: the parameter or the setting, such as `noise` or `task.noise`; None where no field
      is to blame.
    - `value`: what was given; `...` where `problem` says enough about it.
    - `allowed`: what is allowed instead, as the end of a sentence.
    - `problem`: what is wrong with the value, such as "is not symmetric".

    **Example:**

    ```pycon
    >>> from iclflow.errors import InputError
    >>> try:
    ...     icl.isotropic(dim=5, noise=-1)
    ... except InputError as error:
    ...     print(error.field, error.value, "|", error)
    noise -1 | `noise` = -1: must be finite and not negative.
    ```
    """

    @overload
    def __init__(self, sentence: str, /): ...

    @overload
    def __init__(self, field: str, value: Any = ..., *, allowed: str, problem: str = ""): ...

    @overload
    def __init__(self, field: str, value: Any, allowed: str, problem: str = ""): ...

    def __init__(self, field: str, value: Any = ..., allowed: str = "", problem: str = ""):
        # Exceptions are copied to other processes by their arguments.
        super().__init__(*((field, value, allowed, problem) if allowed else (field,)))
        self.field = field if allowed else None
        self.value = value
        self.allowed = allowed
        self.problem = problem

    def __str__(self) -> str:
        return f"`{self.field}` {self.predicate}" if self.allowed else self.args[0]

    @property
    def predicate(self) -> str:
        """The sentence without its subject, the field."""
        value = "" if self.value is ... else f"= {shorten(self.value)}"
        end = "" if self.allowed.endswith((".", "?")) else "."
        return f"{f'{value} {self.problem}'.strip()}: {self.allowed}{end}"

    def renamed(self, field: str) -> "InputError":
        """The same error about a field with another name: a setting, or a flag."""
        return InputError(field, self.value, self.allowed, self.problem)


def shorten(value: Any) -> str:
    """A value for a sentence: on one line, and not too long.

    **Example:**

    ```pycon
    >>> from iclflow.errors import shorten
    >>> shorten(np.arange(3)), shorten("x" * 100)[-5:]
    ('[0, 1, 2]', 'xxxx…')
    ```
    """
    try:
        # An array, or a number of NumPy, reads as the plain Python value that it holds.
        text = " ".join(repr(value.tolist() if hasattr(value, "tolist") else value).split())
    except ValueError:  # beyond Python's limit on digits
        return "a number with thousands of digits"
    except RecursionError:
        return "a value that is nested too deeply"
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"
