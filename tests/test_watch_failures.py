"""What goes wrong beside a training that is watched: it goes on, and so does its record."""

import os
import warnings

import jax
import pytest

import iclflow as icl
from iclflow.analysis import AlgorithmWatch
from iclflow.watching import read_looks
from iclflow.watching._follow import read_problems
from test_watch import look_at, step, zero


@pytest.fixture(scope="module")
def task():
    return icl.LinearRegression(eigenvalues=[1.0, 0.5], context=6, noise=0.1)


def test_a_look_that_fails_for_another_reason_does_not_end_the_training(
    task, monkeypatch, tmp_path
):
    def lose_memory(self, own):
        raise MemoryError("no memory left")

    with icl.watch(task, zero, every=1, count=50, out=tmp_path / "run") as watched:
        strict = icl.watch(task, zero, every=1, count=50, strict=True)
        monkeypatch.setattr(AlgorithmWatch, "rank", lose_memory)
        with pytest.warns(UserWarning, match="The look failed with MemoryError: no memory left."):
            assert watched(0) is None
        with pytest.raises(MemoryError):
            strict(0)
        # Where warnings are errors, the record still says what went wrong.
        watched._said.clear()
        with warnings.catch_warnings(), pytest.raises(UserWarning, match="MemoryError"):
            warnings.simplefilter("error")
            watched(1)
    assert [step for step, _ in read_problems(tmp_path / "run")] == [0, 1]


@pytest.mark.skipif(os.name != "posix", reason="the limit is that of POSIX")
def test_looks_for_which_there_was_no_space_are_recorded_by_the_next_one(task, tmp_path):
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with icl.watch(task, zero, every=1, count=50, out=tmp_path) as watched:
        watched(0)
        size = (tmp_path / "looks.jsonl").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, limits[1]))
        try:
            with pytest.warns(UserWarning, match="The look was not recorded"):
                watched(1)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        # Not even a part of the line is left.
        assert (tmp_path / "looks.jsonl").stat().st_size == size
        watched(2)
        assert read_looks(tmp_path) == watched.looks and len(watched.looks) == 3


def test_what_a_training_forbids_jax_does_not_reach_what_is_measured(task):
    expected = look_at(icl.watch(task, step(0.8), every=1, count=50))
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        with jax.transfer_guard("disallow"):
            look = look_at(icl.watch(task, step(0.8), every=1, count=50, strict=True))
    assert look.as_json() | {"seconds": 0} == expected.as_json() | {"seconds": 0}


def test_nothing_is_written_after_the_record_was_closed_or_through_a_link(task, tmp_path):
    with icl.watch(task, zero, every=1, count=50, out=tmp_path / "run") as watched:
        for number in range(3):
            watched(number)
        (tmp_path / "run" / "problems.jsonl").symlink_to(tmp_path / "mine")
        (tmp_path / "mine").write_text("mine\n")
        watched._predict = lambda *_: None
        with pytest.warns(UserWarning, match="no array of real numbers"):
            watched(3)
        (tmp_path / "run" / "problems.jsonl").unlink()
        watched._predict = zero
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    # Another process may have gone on with it; also a step that goes back changes nothing.
    for number in (4, 1):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            assert watched(number) is not None
        assert number == 1 or "not recorded: the record was closed." in str(said[0].message)
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    assert (tmp_path / "mine").read_text() == "mine\n"
