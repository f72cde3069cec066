"""`iclflow cite`: the BibTeX of what a claim, a study, a figure or a theory function rests on."""

from collections.abc import Sequence

from ._arguments import Parser


def main(arguments: Sequence[str]) -> int:
    """Prints BibTeX entries."""
    parser = Parser(
        "cite",
        "Prints the BibTeX of the papers behind claims, studies, figures or theory functions; "
        "without names, that of iclflow and of all papers.",
    )
    parser.flag("names", "such as linear/staircase", "NAME", nargs="*")
    names = parser.parse_args(arguments).names
    from ..papers import citation

    print(citation(*names))
    return 0
