"""Which points `SaveAtDrops` keeps, decided point after point inside the compiled program."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ._save import SaveAtDrops, SavePoints

# At the start the range is still rounding noise, such a share of the loss: that is no movement.
_NOISE = 1e-9


class Thinned(NamedTuple):
    """The last point that was kept, and the range of the loss so far."""

    time: Float[Array, ""]
    loss: Float[Array, ""]
    low: Float[Array, ""]
    high: Float[Array, ""]


class Thinning(eqx.Module):
    """The rule of `SaveAtDrops`. Its numbers are arrays: others do not mean another compilation."""

    share: Float[Array, ""]
    clock: Float[Array, ""]

    @staticmethod
    def of(save: SavePoints) -> "Thinning | None":
        """The rule that `save` asks for; None if it names the moments."""
        if not isinstance(save, SaveAtDrops):
            return None
        return Thinning(jnp.asarray(save.loss, float), jnp.asarray(save.clock, float))

    def look(
        self, before: Thinned, time: Float[Array, ""], loss: Float[Array, ""]
    ) -> tuple[Thinned, Bool[Array, ""]]:
        """What to go on from after the next point, and whether that is kept."""
        # The range so far, not that of the whole run, which is not known yet.
        low, high = jnp.minimum(before.low, loss), jnp.maximum(before.high, loss)
        least = jnp.maximum(self.share * (high - low), _NOISE * jnp.abs(loss))
        moved = jnp.abs(loss - before.loss) > least
        kept = moved | (time - before.time > self.clock * time)
        choose = lambda new, old: jnp.where(kept, new, old)
        return Thinned(choose(time, before.time), choose(loss, before.loss), low, high), kept
