"""What a command loads before it computes anything, and what processes share when they do."""

import os
import subprocess
import sys

import pytest

from iclflow.cli import COMMANDS
from iclflow.papers import study
from iclflow.store import PARTS, SWEEP, SWEEP_HEADER, config_text, part_name
from iclflow.sweeps import encode_part

# Each takes a tenth of a second or more.
HEAVY = {
    *("jax", "numpy", "scipy", "equinox", "diffrax", "optax", "matplotlib", "tyro", "rich"),
    *("duckdb", "ray", "xarray", "torch", "starlette", "uvicorn", "plotly", "safetensors"),
}


def python(program: str, **options) -> str:
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_help_of_no_command_loads_what_computes_or_draws():
    program = f"""
import contextlib, io, sys
from iclflow.cli import main
for name in {list(COMMANDS)!r}:
    before = set(sys.modules)
    with contextlib.redirect_stdout(io.StringIO()) as text, contextlib.suppress(SystemExit):
        main([name, "--help"])
    assert name in text.getvalue(), name
    loaded = sorted({HEAVY!r} & (set(sys.modules) - before))
    if loaded:
        print(name, *loaded)
"""
    assert python(program) == ""


def test_the_front_page_loads_nothing_but_the_standard_library():
    program = """
import sys
before = set(sys.modules)
from iclflow.cli import main
main(["--help"])
names = {name.split(".")[0] for name in set(sys.modules) - before}
print(sorted(names - set(sys.stdlib_module_names)))
"""
    assert python(program).splitlines()[-1] == "['iclflow']"


def test_lists_and_queries_do_not_load_jax(tmp_path):
    (tmp_path / "runs" / "one").mkdir(parents=True)
    (tmp_path / "runs" / "one" / "config.toml").write_text(config_text(study("linear/merged")))
    sweep = tmp_path / "sweeps" / "a-sweep"
    (sweep / PARTS).mkdir(parents=True)
    (sweep / SWEEP).write_text(SWEEP_HEADER)
    rows = encode_part({"run": "BIGINT", "final_loss": "DOUBLE"}, [{"run": 0}], tmp_path)
    (sweep / PARTS / part_name(0, rows, None)).write_bytes(rows)
    commands = (
        ["claims"],
        ["claims", "--json", "--paper", "softmax"],
        ["reproduce", "--list"],
        ["reproduce", "--list", "--json"],
        ["examples"],
        ["runs"],
        ["runs", "--json"],
        ["query", "a-sweep"],
        ["query", "a-sweep", "SELECT count(*) FROM results", "--json"],
    )
    program = f"""
import contextlib, io, sys
from iclflow.cli import main
for words in {commands!r}:
    with contextlib.redirect_stdout(io.StringIO()) as text:
        assert main(words) == 0, words
    assert text.getvalue(), words
    loaded = {{"jax", "equinox", "scipy", "matplotlib"}} & set(sys.modules)
    assert not loaded, (words, loaded)
from iclflow.papers import all_claims, listed_claims
assert [claim.id for claim in listed_claims()] == [claim.id for claim in all_claims()]
"""
    python(program, cwd=tmp_path)


def test_risks_do_not_load_the_statistics_of_scipy():
    # A second of three, for a rule that needs it with four tasks or more.
    assert python("import sys, iclflow.risks; print('scipy.stats' in sys.modules)") == "False\n"


@pytest.mark.slow
def test_two_processes_that_start_at_once_share_one_cache_of_programs(tmp_path):
    program = """
from iclflow.runtime import start
start()
import jax, jax.numpy as jnp
print(float(jax.jit(lambda x: jnp.sum(jnp.sin(x) ** 3))(jnp.arange(50.0))))
"""
    place = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path), "JAX_ENABLE_COMPILATION_CACHE": "true"}
    begin = lambda: subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | place,
    )
    both = [begin(), begin()]
    found = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert found[0] == found[1] and found[0][1] == ""
    assert any(tmp_path.iterdir())
    # A third finds what they left, whole.
    third = begin()
    assert third.communicate(timeout=120) == found[0]


def test_what_builds_a_run_loads_no_part_of_scipy_before_it_is_used():
    program = (
        "import sys, iclflow.experiment; print(*(m for m in sys.modules if 'scipy.' in m[:6]))"
    )
    loaded = {name.split(".")[1] for name in python(program).split()}
    assert not loaded & {"optimize", "integrate", "interpolate", "special", "linalg", "ndimage"}
