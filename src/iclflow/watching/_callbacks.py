"""Callbacks of training libraries: they call a watch with the step of their trainer.

Their base classes are imported when one is made, and not before.
"""

from typing import TYPE_CHECKING, Any

from ..errors import InputError

if TYPE_CHECKING:
    from ._watch import Watch


class _Caller:
    """Calls a watch once for each step, also where a trainer reports a step several times, as
    Lightning does for the batches whose gradients it adds up."""

    def __init__(self, watch: "Watch"):
        self._watch, self._seen = watch, -1

    def look(self, step: int, is_first: bool) -> None:
        """A step is done; the process `is_first` of all, or another one."""
        if is_first and step != self._seen:
            self._seen = step
            self._watch(step)

    def end(self, step: int, is_first: bool) -> None:
        """The training ends: its last step is looked at, unless that was tried already."""
        looks = self._watch.looks
        tried = step in self._watch.problems or (looks and looks[-1].step == step)
        if is_first and not tried:
            self._watch(step, force=True)


def huggingface(watch: "Watch") -> Any:
    """A `TrainerCallback` of `transformers`: `trainer.add_callback(icl.watch.huggingface(watch))`.

    It looks at step 0, after every step at which a look is due, and at the end. In a training of
    several processes the first one looks; `out=` is given to its watch alone.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=3, context=10, noise=0.1)
    >>> watch = icl.watch(task, lambda x, y, x_query: np.zeros(len(x)), every=100)
    >>> type(icl.watch.huggingface(watch)).__name__
    'WatchCallback'
    ```
    """
    try:
        from transformers import TrainerCallback  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise _missing("transformers", "watch-hf") from None
    caller = _Caller(watch)

    class WatchCallback(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            caller.look(state.global_step, state.is_world_process_zero)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            look = caller.end if control.should_training_stop else caller.look
            look(state.global_step, state.is_world_process_zero)

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            # Weights of another step may have been loaded by now.
            if not args.load_best_model_at_end:
                caller.end(state.global_step, state.is_world_process_zero)

    return WatchCallback()


def lightning(watch: "Watch") -> Any:
    """A `Callback` of PyTorch Lightning: `Trainer(callbacks=[icl.watch.lightning(watch)])`.

    It looks at step 0, after every step at which a look is due, and at the end. In a training of
    several processes the first one looks; `out=` is given to its watch alone.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=3, context=10, noise=0.1)
    >>> watch = icl.watch(task, lambda x, y, x_query: np.zeros(len(x)), every=100)
    >>> type(icl.watch.lightning(watch)).__name__
    'WatchCallback'
    ```
    """
    Callback = _lightning_callback()
    caller = _Caller(watch)

    class WatchCallback(Callback):  # pyright: ignore[reportGeneralTypeIssues]
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            caller.look(int(trainer.global_step), trainer.is_global_zero)

        def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
            caller.look(int(trainer.global_step), trainer.is_global_zero)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            caller.end(int(trainer.global_step), trainer.is_global_zero)

    return WatchCallback()


def _lightning_callback() -> Any:
    """The base class, under either name of the library."""
    try:
        from lightning.pytorch import Callback  # pyright: ignore[reportMissingImports]
    except ImportError:
        try:
            from pytorch_lightning import Callback  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise _missing("pytorch_lightning", "watch-lightning") from None
    return Callback


def _missing(library: str, extra: str) -> InputError:
    return InputError(f"`{library}` is not installed: `pip install 'iclflow[{extra}]'`.")
