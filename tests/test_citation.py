"""What to cite: BibTeX by claim, study, figure and theory function."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import iclflow as icl
from iclflow import theory
from iclflow.cli import main
from iclflow.papers import CLAIMS, FIGURES, PAPERS, STUDIES, SUBJECTS, citation
from iclflow.studies import BIBLIOGRAPHY


def papers_in(text: str) -> list[str]:
    numbers = re.findall(r"eprint = \{(.*?)\}", text)
    return [name for name, number in PAPERS.items() if number in numbers]


def test_without_arguments_all_is_cited():
    found = icl.citation()
    assert found.startswith("@software{iclflow,")
    assert papers_in(found) == list(PAPERS) and found.count("@inproceedings") == 4
    assert found.count("@article") == 2
    assert "note" not in found


def test_papers_are_listed_in_one_place():
    assert set(BIBLIOGRAPHY) == set(PAPERS) == set(SUBJECTS) == {c.paper for c in CLAIMS.values()}
    # Importing the papers by name loads neither JAX nor NumPy.
    program = "import sys, iclflow.studies; print({'jax', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "set()\n"
    # Nowhere else does the source list the three names together.
    names = re.compile(r"[\"']linear[\"'](.{0,80})[\"']softmax[\"'](.{0,80})[\"']multitask", re.S)
    package = Path(icl.__file__).parent
    found = [path for path in package.rglob("*.py") if names.search(path.read_text())]
    assert found == []


def test_entries_say_what_the_citation_file_says():
    text = " ".join((Path(__file__).parents[1] / "CITATION.cff").read_text().split())
    for entry in citation().split("\n\n")[1:]:
        fields = dict(re.findall(r"  (\w+) = \{(.*)\},", entry))
        first, *_ = fields["pages"].split("--") if "pages" in fields else ("",)
        for part in (
            fields["title"],
            fields.get("booktitle") or fields["journal"],
            fields["url"],
            first,
        ):
            assert part in text
        for author in fields["author"].split(" and "):
            family, given = author.split(", ")
            assert f"family-names: {family} given-names: {given}" in text


def test_claims_studies_and_figures_name_their_places():
    claim = CLAIMS["linear/cascade"]
    assert citation(claim) == citation("linear/cascade") or "linear/cascade" in {*STUDIES, *FIGURES}
    assert papers_in(citation(claim)) == ["linear"]
    study, figure = next(iter(STUDIES.values())), next(iter(FIGURES.values()))
    assert study.title in citation(study) and figure.name in citation(figure)


def test_theory_functions_know_their_paper():
    for function, paper in [
        (theory.plateau_losses, "linear"),
        (theory.pair_optimum, "softmax"),
        (theory.multitask.loss, "multitask"),
        (theory.diversity.data_risks, "diversity"),
        (theory.depth.optimal_stack, "depth"),
    ]:
        assert papers_in(citation(function)) == [paper]
    assert citation("pair_optimum") == citation("theory.pair_optimum")
    assert citation("multitask.loss") == citation(theory.multitask.loss)
    both = citation("pair_optimum", "plateau_losses", theory.pair_optimum)
    assert papers_in(both) == ["linear", "softmax"] and both.count(r"pair\_optimum") == 1


def test_of_two_papers_in_a_folder_the_one_that_is_meant_is_cited():
    # A claim on the one, a claim on the other, and a name of theory, which is about both.
    for name, key in [
        ("depth/best-steps-are-learned", "ahn2023transformers"),
        ("depth/time-exponent", "bordelon2025theory"),
        ("depth.optimal_stack", "bordelon2025theory"),
    ]:
        found = citation(name)
        assert found.count("@") == 1 and f"{{{key}," in found and "note" in found


def test_every_public_name_of_multitask_theory_cites_its_own_paper():
    # The type hook of tests adds names of other packages.
    ours = lambda value: getattr(value, "__module__", "").startswith("iclflow")
    named = vars(theory.multitask).items()
    public = [name for name, value in named if ours(value) and not name.startswith("_")]
    assert {"Slopes", "OwnHeads", "loss"} <= set(public)
    for name in public:
        found = citation(f"multitask.{name}")
        assert papers_in(found) == ["multitask"], name
        # The note names what was asked for, not another name of the same thing.
        assert f"theory.multitask.{name}:" in found.replace("\\_", "_"), name


def test_every_public_theory_function_can_be_cited():
    for module in (theory, theory.multitask, theory.diversity, theory.depth):
        for value in vars(module).values():
            if getattr(value, "__module__", "").startswith("iclflow.theory"):
                assert len(papers_in(citation(value))) == 1


@pytest.mark.parametrize("name", ["linear/cascad", "pair_optimun"])
def test_unknown_names_are_refused_with_what_is_near(name):
    with pytest.raises(ValueError, match="did you mean .*(linear/cascade|pair_optimum)"):
        citation(name)


def test_other_things_are_refused(unchecked):
    # A function of others, and what a function of theory returns.
    for wrong in (len, theory.Setting(5, 40, 0.1)):
        with pytest.raises(ValueError, match="cannot be cited: must be a claim"):
            citation(wrong)


def test_the_command_prints_bibtex(capsys):
    assert main(["cite", "linear/cascade"]) == 0
    assert capsys.readouterr().out.startswith("@inproceedings{zhang2025training,")
    assert main(["cite", "linear/cascad"]) == 2
    assert "did you mean linear/cascade" in capsys.readouterr().err
