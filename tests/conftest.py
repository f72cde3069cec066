import random

import jax
import jax.random as jr
import jaxtyping
import pytest

jax.config.update("jax_enable_x64", True)


@pytest.fixture
def getkey():
    """A source of fresh random keys, the same on every run."""
    source = random.Random(0)

    def _getkey():
        return jr.key(source.randint(0, 2**31 - 1))

    return _getkey


@pytest.fixture
def unchecked():
    """Switches the checks of annotated types off, where our own refusal is what is tested."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
