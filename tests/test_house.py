"""The house: which way imports point, what travels with the source, what a clean machine needs."""

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import jax.numpy as jnp
import jaxtyping
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import iclflow
from iclflow import papers, report
from iclflow.cli import _sweep, _verify
from iclflow.sweeps import _complete

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "iclflow"

# Each may import from those before it and from itself.
ORDER = (
    *(
        "errors",
        "limits",
        "runtime",
        "files",
        "tensors",
        "eigen",
        "tasks",
        "models",
        "risks",
        "estimators",
        "circuits",
        "drawing",
        "trajectory",
        "checkpoints",
        "flows",
    ),
    *(
        "theory",
        "analysis",
        "config",
        "studies",
        "store",
        "experiment",
        "papers",
        "report",
        "verification",
        "sweeps",
        "watching",
    ),
    *("explorer", "cli", "__main__"),
)
# Prediction and measurement share no code.
EXCEPTIONS = {"theory": {"errors", "runtime", "tasks"}}
CORE = ORDER[: ORDER.index("analysis") + 1]
EDGE_LIBRARIES = {
    *("pydantic", "tyro", "duckdb", "ray", "matplotlib", "rich", "starlette", "xarray", "torch"),
}


# Lists that are written twice, because one of the places must load quickly or is no Python ------


def test_every_verdict_has_its_sign_and_its_words_everywhere():
    script = (PACKAGE / "explorer" / "static" / "verdicts.js").read_text(encoding="utf-8")
    known = re.search(r"const VERDICTS = \{(.*?)\};", script, re.DOTALL)
    assert known is not None
    shown = {verdict: re.search(rf"\b{verdict}:", known[1]) for verdict in papers.VERDICTS}
    assert all(shown.values()), shown
    assert set(report.SIGNS) == set(_verify._VERBS) == set(papers.VERDICTS)


def test_the_command_offers_the_engines_of_sweeps():
    assert list(_sweep.ENGINES) == list(_complete.ENGINES)


# Import directions ----------------------------------------------------------------------------


def imported_modules(node: ast.AST, package: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The dotted names that one import statement may load, as tuples; `package` holds it."""
    if isinstance(node, ast.Import):
        yield from (tuple(alias.name.split(".")) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = package[: len(package) - node.level + 1] if node.level else ()
        base += tuple(node.module.split(".")) if node.module else ()
        # `from . import x` loads the module x where there is one.
        yield from ((*base, alias.name) for alias in node.names)


def backward_imports(source: str, module: tuple[str, ...], is_package: bool) -> list[str]:
    """What `module` imports from this package and must not, wherever in the file it does so."""
    package = module if is_package else module[:-1]
    name = module[1]
    allowed = EXCEPTIONS.get(name, set(ORDER[: ORDER.index(name)])) | {name}
    return [
        ".".join(target)
        for node in ast.walk(ast.parse(source))
        for target in imported_modules(node, package)
        # A bare `import iclflow` loads the public API, which stands above everything.
        if target[0] == "iclflow" and (len(target) == 1 or target[1] not in allowed)
    ]


def private_imports(source: str, module: tuple[str, ...], is_package: bool) -> list[str]:
    """What `module` imports from private modules of other rooms, or of other papers."""
    package = module if is_package else module[:-1]
    return [
        ".".join(target)
        for node in ast.walk(ast.parse(source))
        for target in imported_modules(node, package)
        if target[0] == "iclflow"
        # A private module is for those in the package that holds it, and in packages below.
        for depth, part in enumerate(target)
        if part.startswith("_") and not part.startswith("__")
        if module[:depth] != target[:depth]
    ]


# What measures, rather than shows: linear algebra, contractions, derivatives.
COMPUTES = {
    *("linalg", "einsum", "tensordot"),
    *("grad", "value_and_grad", "jacfwd", "jacrev", "hessian"),
}


def computations(source: str) -> list[str]:
    """The numerical functions that a module with this source calls itself."""
    return [
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and node.attr in COMPUTES
    ]


def loaded_on_import(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run when a module is loaded, those under `TYPE_CHECKING` left out."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        yield node
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from loaded_on_import(node.orelse)
            continue
        for field in ("body", "orelse", "finalbody"):
            yield from loaded_on_import(getattr(node, field, []))
        for handler in getattr(node, "handlers", []):
            yield from loaded_on_import(handler.body)


def heavy_imports(source: str) -> list[str]:
    """The libraries of the edges that loading a module with this source would load."""
    return [
        target[0]
        for node in loaded_on_import(ast.parse(source).body)
        for target in imported_modules(node, ("iclflow", "_"))
        if target[0] in EDGE_LIBRARIES
    ]


def modules() -> dict[tuple[str, ...], Path]:
    """Every module below the public API, by its dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[parts[:-1] if parts[-1] == "__init__" else parts] = path
    del found[("iclflow",)]
    return found


def test_every_module_has_a_place_in_the_order():
    assert {module[1] for module in modules()} <= set(ORDER)


def test_imports_never_point_back():
    found = {
        ".".join(module): backward_imports(path.read_text(), module, path.name == "__init__.py")
        for module, path in modules().items()
    }
    assert {module: names for module, names in found.items() if names} == {}


def test_no_room_imports_a_private_module_of_another():
    found = {
        ".".join(module): private_imports(path.read_text(), module, path.name == "__init__.py")
        for module, path in modules().items()
    }
    assert {module: names for module, names in found.items() if names} == {}


def test_rooms_that_show_compute_nothing():
    shows = {m: path for m, path in modules().items() if m[1] in ("report", "explorer", "cli")}
    found = {".".join(module): computations(path.read_text()) for module, path in shows.items()}
    assert {module: names for module, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "module, statement, found",
    [
        ("cli._run", "from ..experiment._build import prepare", 1),
        ("papers.linear.claims_x", "from ..softmax._limits import f", 1),
        ("risks.fused._pass", "from ...tasks import _base", 1),
        ("papers.linear.claims_x", "from .._lab import Lab\nfrom ._limits import f", 0),
        ("risks.fused._pass", "from .._base import AbstractRisk\nfrom . import __doc__", 0),
    ],
)
def test_the_privacy_check_sees_other_rooms_and_papers(module, statement, found):
    module = ("iclflow", *module.split("."))
    assert len(private_imports(statement, module, is_package=False)) == found


def test_the_check_of_computations_sees_linear_algebra():
    assert computations("x = np.linalg.norm(jnp.mean(y))") == ["linalg"]


def test_figures_share_runs_with_claims_and_import_none_of_them():
    found = [
        ".".join(module)
        for module, path in modules().items()
        if module[1] == "papers" and not module[-1].startswith("claims_")
        for node in ast.walk(ast.parse(path.read_text()))
        for target in imported_modules(node, module[:-1])
        # iclflow.papers.PAPER.claims_TOPIC
        if len(target) > 3 and target[1] == "papers" and target[3].startswith("claims_")
    ]
    assert found == []


def test_the_numerical_core_loads_no_library_of_the_edges():
    core = {module: path for module, path in modules().items() if module[1] in CORE}
    found = {".".join(module): heavy_imports(path.read_text()) for module, path in core.items()}
    assert {module: names for module, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "module, statement, found",
    [
        ("tasks._base", "from ..models import Merged", ["iclflow.models.Merged"]),
        ("tasks._base", "from .. import models", ["iclflow.models"]),
        ("tasks._base", "import iclflow.models._merged", ["iclflow.models._merged"]),
        ("tasks._base", "def f():\n    from iclflow.risks import risk", ["iclflow.risks.risk"]),
        ("tasks._base", "import iclflow as icl", ["iclflow"]),
        ("theory._drop", "from ..models import Merged", ["iclflow.models.Merged"]),
        ("theory._drop", "from ..tasks import Mixture\nfrom ._drop import f", []),
        ("models._merged", "from ..tasks import Sequences\nfrom ._base import f\nimport jax", []),
        ("trajectory", "from .flows import x", ["iclflow.flows.x"]),
        ("trajectory", "from .models import MODELS", []),
    ],
)
def test_the_direction_check_sees_every_way_to_import(module, statement, found):
    module = ("iclflow", *module.split("."))
    assert backward_imports(statement, module, is_package=False) == found


def test_the_library_check_sees_what_runs_and_nothing_else():
    lazy = "if TYPE_CHECKING:\n    import xarray\ndef f():\n    import matplotlib.pyplot"
    eager = "try:\n    import rich.progress\nexcept ImportError:\n    from torch import nn"
    assert heavy_imports(lazy) == []
    assert heavy_imports(eager) == ["rich", "torch"]


def test_importing_the_library_loads_no_library_of_the_edges():
    program = "import sys, iclflow; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout.split()
    assert "iclflow" in loaded
    assert EDGE_LIBRARIES.isdisjoint(loaded)


def test_every_public_name_can_be_loaded():
    import iclflow

    assert {"FlowOptions", "papers", "experiment", "gradient_flow"} <= set(dir(iclflow))
    assert [name for name in dir(iclflow) if not hasattr(iclflow, name)] == []
    assert iclflow.__version__ == importlib.metadata.version("iclflow")


def test_shapes_are_checked_in_the_test_run(request):
    if not request.config.getoption("jaxtyping_packages"):
        pytest.skip("this run was started without --jaxtyping-packages")
    from iclflow.tasks import estimate_mean

    with pytest.raises(jaxtyping.TypeCheckError):
        estimate_mean(jnp.zeros((2, 3)))


# Public names ----------------------------------------------------------------------------------


def test_every_public_name_is_listed_once_and_found():
    stub = (PACKAGE / "__init__.pyi").read_text()
    names = [alias.name for node in ast.parse(stub).body if isinstance(node, ast.ImportFrom)
             for alias in node.names]  # fmt: skip
    assert len(set(names)) == len(names)
    assert sorted(iclflow.__all__) == sorted([*names, "__version__"])
    assert all(getattr(iclflow, name) is not None for name in names)


def untyped_parameters(source: str) -> list[str]:
    """The parameters of public functions and methods that have no type."""
    bodies = [ast.parse(source).body]
    bodies += [node.body for node in bodies[0] if isinstance(node, ast.ClassDef)]
    return [
        f"{node.name}({argument.arg})"
        for node in (node for body in bodies for node in body)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_"
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        if argument.annotation is None and argument.arg not in ("self", "cls")
    ]


def test_every_parameter_of_a_public_function_has_a_type():
    # Numba infers the types of what it compiles from the calls.
    sources = {m: p for m, p in modules().items() if not m[-1].startswith("_numba")}
    found = {".".join(module): untyped_parameters(p.read_text()) for module, p in sources.items()}
    assert {module: names for module, names in found.items() if names} == {}
    assert untyped_parameters("class A:\n  def f(self, x, y: int, *, z): ...") == ["f(x)", "f(z)"]


# What travels with the source -----------------------------------------------------------------


def source_files() -> list[Path]:
    """The files that are, or would be, under version control."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("this is not a git checkout")
    return [ROOT / name for name in listing.stdout.split("\0") if (ROOT / name).is_file()]


def lines_with(pattern: str) -> list[str]:
    """Every line of a source file that matches, with its place; this file excepted."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in source_files()
        if path != Path(__file__).resolve()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if re.search(pattern, line)
    ]


def test_no_source_file_names_a_path_of_one_machine():
    assert lines_with(r"(?<![\w./-])/(root|home|Users|work|opt|mnt)/\w") == []


def test_no_source_file_names_a_package_index():
    assert lines_with(r"index-url|find-links|pypi\.org|pythonhosted|npmjs") == []


def constraints() -> list[Requirement]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def test_constraints_are_exact_and_name_no_address():
    for pin in constraints():
        assert pin.url is None and not pin.extras, pin
        assert [(s.operator, "*" in s.version) for s in pin.specifier] == [("==", False)], pin


@pytest.mark.parametrize("python", ["3.11", "3.12"])
def test_constraints_hold_one_version_of_each_package(python):
    environment = {"python_version": python}
    names = [p.name for p in constraints() if not p.marker or p.marker.evaluate(environment)]
    assert len(names) == len(set(names))


def test_constraints_pin_everything_that_is_installed_for_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    waiting = project["project"]["dependencies"] + project["build-system"]["requires"]
    waiting = [Requirement(r) for r in waiting + extras["dev"] + extras["test"] + extras["docs"]]
    needed = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if (name, frozenset(requirement.extras)) in needed or name == "iclflow":
            continue
        needed.add((name, frozenset(requirement.extras)))
        try:
            children = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for child in map(Requirement, children):
            environments = [{"extra": extra} for extra in ("", *requirement.extras)]
            if not child.marker or any(child.marker.evaluate(e) for e in environments):
                waiting.append(child)
    assert {name for name, _ in needed} - {pin.name for pin in constraints()} == set()


def test_citation_names_this_version_and_the_papers():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert citation["cff-version"] == "1.2.0" and citation["message"] and citation["authors"]
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])
    papers = {
        identifier["value"]: [author["family-names"] for author in reference["authors"]]
        for reference in citation["references"]
        for identifier in reference["identifiers"]
    }
    assert papers == {
        "arXiv:2501.16265": ["Zhang", "Singh", "Latham", "Saxe"],
        "arXiv:2503.12734": ["He", "Pan", "Chen", "Yang"],
        "arXiv:2402.19442": ["Chen", "Sheen", "Wang", "Yang"],
        "arXiv:2405.11751": ["Lu", "Letey", "Zavatone-Veth", "Maiti", "Pehlevan"],
        "arXiv:2510.01098": ["Bordelon", "Letey", "Pehlevan"],
        "arXiv:2306.00297": ["Ahn", "Cheng", "Daneshmand", "Sra"],
    }
