"""Callbacks of training libraries: they call a watch with the step of their trainer.

Their base classes are imported when one is made, and not before.
"""

from typing import TYPE_CHECKING, Any

from ..errors import InputError

if TYPE_CHECKING:
    from ._watch import Watch


def huggingface(watch: "Watch") -> Any:
    """A `TrainerCallback` of `transformers`: `trainer.add_callback(icl.watch.huggingface(watch))`.

    It looks at step 0, after every step at which a look is due, and at the end. In a training of
    several processes the first one looks.
    """
    try:
        from transformers import TrainerCallback  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise _missing("transformers", "watch-hf") from None

    class WatchCallback(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._look(state)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._look(state)

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._look(state, force=_is_new(watch, state.global_step))

        def _look(self, state: Any, force: bool = False) -> None:
            if state.is_world_process_zero:
                watch(state.global_step, force)

    return WatchCallback()


def lightning(watch: "Watch") -> Any:
    """A `Callback` of PyTorch Lightning: `Trainer(callbacks=[icl.watch.lightning(watch)])`.

    It looks at step 0, after every batch at which a look is due, and at the end. In a training of
    several processes the first one looks.
    """
    Callback = _lightning_callback()

    class WatchCallback(Callback):  # pyright: ignore[reportGeneralTypeIssues]
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self._look(trainer)

        def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
            self._look(trainer)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            self._look(trainer, force=_is_new(watch, trainer.global_step))

        def _look(self, trainer: Any, force: bool = False) -> None:
            if trainer.is_global_zero:
                watch(int(trainer.global_step), force)

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


def _is_new(watch: "Watch", step: int) -> bool:
    """Whether the last look was at another step: the end is looked at once."""
    looks = watch.looks
    return not looks or looks[-1].step != step
