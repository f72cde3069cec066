"""Adapters: modules of PyTorch, functions of JAX, writers of TensorBoard."""

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import InputError


class Torch:
    """A module of PyTorch as `predict`: arrays become tensors on its device, in its precision.

    It is called without gradients and in evaluation mode, where dropout is off, and left as it was.
    So are the generators of PyTorch, also if the module draws random numbers: the training goes on
    with the numbers that it would have without a watch.

    **Arguments:**

    - `module`: called with (x, y, x_query), unless `call` says otherwise.
    - `call`: how to call it: a function of (module, x, y, x_query), with tensors.

    **Example:**

    ```pycon
    >>> import torch
    >>> task = icl.isotropic(dim=3, context=10, noise=0.1)
    >>> class Step(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.size = torch.nn.Parameter(torch.tensor(0.7))
    ...     def forward(self, x, y, x_query):
    ...         return self.size * torch.einsum("bnd,bn,bd->b", x, y, x_query) / x.shape[1]
    >>> watch = icl.watch(task, icl.watch.torch(Step()), every=1)
    >>> watch(0).nearest[0].name
    'one gradient step'
    ```
    """

    def __init__(self, module: Any, call: Callable[..., Any] | None = None):
        if not callable(module):
            raise InputError(f"`module` is a {type(module).__name__}: must be a module of PyTorch.")
        self.module = module
        self._call = call or (lambda module, *tensors: module(*tensors))

    def __call__(self, x: np.ndarray, y: np.ndarray, x_query: np.ndarray) -> Any:
        import torch  # pyright: ignore[reportMissingImports]

        parameters: Any = getattr(self.module, "parameters", tuple)
        weights: Any = next((each for each in parameters() if each.is_floating_point()), None)
        device = torch.device("cpu") if weights is None else weights.device
        dtype = torch.get_default_dtype() if weights is None else weights.dtype
        tensors = [torch.as_tensor(part).to(device, dtype) for part in (x, y, x_query)]
        drawn_on = [device] if device.type == "cuda" else []  # beside the CPU
        with torch.random.fork_rng(drawn_on), torch.no_grad(), _evaluating(self.module):
            return self._call(self.module, *tensors)


class Jax:
    """A function of JAX as `predict`, compiled once: it is called with arrays of JAX.

    **Arguments:**

    - `function`: of (x, y, x_query), or of (parameters, x, y, x_query) if `parameters` is given.
    - `parameters`: a function that returns the present parameters, such as `lambda: state.params`.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=3, context=10, noise=0.1)
    >>> def predict(weight, x, y, x_query):
    ...     return weight * jnp.einsum("bnd,bn,bd->b", x, y, x_query) / x.shape[1]
    >>> watch = icl.watch(task, icl.watch.jax(predict, lambda: jnp.float32(0.7)), every=1)
    >>> watch(0).nearest[0].name
    'one gradient step'
    ```
    """

    def __init__(self, function: Callable[..., Any], parameters: Callable[[], Any] | None = None):
        import equinox as eqx

        for name, given in (("function", function), ("parameters", parameters)):
            if given is not None and not callable(given):
                raise InputError(
                    f"`{name}` is a {type(given).__name__}: must be a function"
                    + (" that returns the present parameters." if name == "parameters" else ".")
                )
        self._function, self._parameters = eqx.filter_jit(function), parameters

    def __call__(self, x: np.ndarray, y: np.ndarray, x_query: np.ndarray) -> Any:
        first = () if self._parameters is None else (self._parameters(),)
        return self._function(*first, x, y, x_query)


class Tensorboard:
    """A `SummaryWriter` of TensorBoard as `log`.

    **Example:**

    ```pycon
    >>> class Writer:
    ...     def add_scalar(self, name, value, step):
    ...         if name == "loss":
    ...             print(step, name, round(value, 1))
    >>> task = icl.isotropic(dim=3, context=10, noise=0.1)
    >>> log = icl.watch.tensorboard(Writer())
    >>> watch = icl.watch(task, lambda x, y, x_query: np.zeros(len(x)), every=1, log=log)
    >>> look = watch(0)
    ```
    """

    def __init__(self, writer: Any):
        self._writer = writer

    def __call__(self, metrics: dict[str, float], step: int) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)


def adapt(predict: Any) -> Callable[..., Any]:
    """`predict` as a function of arrays: modules of PyTorch are wrapped, functions stay."""
    torch = sys.modules.get("torch")  # a module of PyTorch cannot exist without it
    if torch is not None and isinstance(predict, torch.nn.Module):
        return Torch(predict)
    if not callable(predict):
        raise InputError(
            f"`predict` is a {type(predict).__name__}: must be a function of (x, y, x_query), or a "
            "module of PyTorch."
        )
    return predict


@contextlib.contextmanager
def _evaluating(module: Any):
    """Evaluation mode, undone for each part of a module on its own: some may be frozen."""
    modes = [(part, part.training) for part in getattr(module, "modules", lambda: ())()]
    for part, _ in modes:
        part.training = False
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode
