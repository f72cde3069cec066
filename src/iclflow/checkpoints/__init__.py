"""Models in files: our own, and PyTorch state dicts with q, k, v and o projections."""

from ._models import load_model as load_model
from ._models import save_model as save_model
from ._state_dict import from_state_dict as from_state_dict
