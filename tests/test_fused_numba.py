"""The fused pass on a processor: machine code by Numba, and what happens without it."""

import dataclasses
import inspect
import pathlib
from importlib.util import find_spec

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from iclflow.flows._checkpoint import owner_of
from iclflow.models import Attention
from iclflow.risks import SampledRisk
from iclflow.risks.fused import FusedBatchRisk, _ffi, engine
from iclflow.risks.fused._philox import four_normals, philox
from iclflow.tasks import isotropic

needs_numba = pytest.mark.skipif(not find_spec("numba"), reason="needs `iclflow[fast]`")


@needs_numba
@pytest.mark.parametrize("counter", [(1, 2, 0), (2**32 - 1, 7, 1), (123456789, 2**31, 0)])
def test_vector_instructions_make_the_same_words(counter):
    from iclflow.risks.fused._numba_functions import LANES, fill_words

    key, (sequence, block, purpose) = (0x12345678, 0x9ABCDEF0), counter
    words = np.empty((4, LANES), np.uint32)
    fill_words(words, *key, sequence, block, purpose)
    expected = philox(tuple(map(jnp.uint32, key)), jnp.uint32(sequence), jnp.uint32(block), purpose)
    assert words[:, 0].tolist() == [int(word) for word in expected]


@needs_numba
def test_vector_instructions_make_the_same_normals():
    from iclflow.risks.fused._numba_functions import LANES, fill_normals, fill_words

    key, out = (11, 12), np.empty((4, LANES), np.float32)
    words = np.empty((4, LANES), np.uint32)
    lane, place = jnp.arange(LANES, dtype=jnp.uint32), jnp.arange(200, dtype=jnp.uint32)[:, None]
    drawn = jax.jit(lambda: four_normals(philox(tuple(map(jnp.uint32, key)), lane, place)))()
    expected = np.stack(drawn, 1)
    for block in range(200):
        fill_words(words, *key, 0, block, 0)
        fill_normals(out, 0, words)
        np.testing.assert_allclose(out, expected[block], atol=2e-6)


def test_without_numba_batches_are_stored(monkeypatch):
    monkeypatch.setattr(_ffi, "available", lambda: False)
    risk, model = (
        SampledRisk(isotropic(3, 9), 20, precision="float32"),
        Attention.factored(jr.key(3), 3, 2),
    )
    assert not isinstance(risk.draw_for(jr.key(3), model), FusedBatchRisk)


@needs_numba
def test_where_numba_fails_a_warning_says_so_and_batches_are_stored(monkeypatch):
    def refuse(*_, **__):
        raise jax.errors.JaxRuntimeError("INVALID_ARGUMENT: another version\nand more")

    monkeypatch.setattr(jax.ffi, "register_ffi_target", refuse)
    with pytest.warns(UserWarning, match="Numba cannot be used here.*another version$"):
        assert not inspect.unwrap(_ffi.available)()


@needs_numba
def test_machine_code_is_kept_for_one_version_of_its_sources():
    from iclflow.risks.fused import _numba_compiled

    first = _numba_compiled._folder()
    assert first is not None and first.parent.name == "numba"
    _numba_compiled._folder.cache_clear()
    text = pathlib.Path.read_bytes
    with pytest.MonkeyPatch.context() as patch:
        changed = lambda path: text(path) + b"#" * (path.name == "_philox.py")
        patch.setattr(pathlib.Path, "read_bytes", changed)
        assert _numba_compiled._folder() != first
    _numba_compiled._folder.cache_clear()


@needs_numba
def test_the_engine_is_told_without_compiling(monkeypatch):
    monkeypatch.setattr(_ffi, "available", None)
    monkeypatch.setattr(_ffi, "_failures", [])
    assert engine().name == "Numba" and "core" in engine().reason
    monkeypatch.setattr(_ffi, "_failures", ["another version"])
    assert str(engine()) == "stored batches: Numba cannot be used here: another version"
    monkeypatch.setattr(_ffi, "find_spec", lambda name: None)
    assert str(engine()) == "stored batches: Numba is not installed"


def test_runs_of_another_version_of_the_pass_are_not_resumed():
    law = SampledRisk(isotropic(3, 9), 20, precision="float32").white
    assert law is not None
    other = dataclasses.replace(law, bits=law.bits - 1)
    assert owner_of(law) == owner_of(dataclasses.replace(law)) != owner_of(other)
