import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from iclflow.eigen import eigh


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("dim", [1, 2, 3, 4, 7, 16, 20])
def test_eigenvectors_are_exact_to_rounding(dim):
    rng = np.random.default_rng(dim)
    factor = rng.normal(size=(30, dim, max(dim - 1, 1)))  # singular: one eigenvalue is zero
    matrices = jnp.asarray(factor @ np.swapaxes(factor, 1, 2))
    values, vectors = jax.jit(eigh)(matrices)
    assert np.allclose(values, np.linalg.eigvalsh(matrices), atol=1e-12 * dim**2)
    assert np.allclose(vectors @ jnp.swapaxes(vectors, 1, 2), np.eye(dim), atol=1e-12)
    rebuilt = (vectors * values[:, None, :]) @ jnp.swapaxes(vectors, 1, 2)
    assert np.allclose(rebuilt, matrices, atol=1e-12 * dim**2)


def test_diagonal_and_repeated_eigenvalues_need_no_luck():
    values, vectors = eigh(jnp.diag(jnp.array([2.0, 1.0, 1.0, 0.0])))
    assert values.tolist() == [0.0, 1.0, 1.0, 2.0]
    assert np.allclose(np.abs(vectors).sum(0), 1.0)


def test_many_batches_in_one_program_do_not_wait_for_each_other():
    matrices = jr.normal(jr.key(0), (2000, 4, 4))
    matrices = matrices @ jnp.swapaxes(matrices, 1, 2)

    @jax.jit
    def program(x):
        return sum(jnp.sum(eigh(x * (i + 1))[0]) for i in range(6))

    assert float(program(matrices)) == pytest.approx(21 * float(jnp.trace(matrices.sum(0))))
