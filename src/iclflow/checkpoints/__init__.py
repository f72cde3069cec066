"""Models in files and in memory: our own, and the layers of attention of PyTorch models."""

from ._folder import Checkpoint as Checkpoint
from ._folder import has_checkpoints as has_checkpoints
from ._folder import list_checkpoints as list_checkpoints
from ._layers import Layer as Layer
from ._layers import ReadIn as ReadIn
from ._layers import from_circuits as from_circuits
from ._layers import read_layers as read_layers
from ._models import is_whole_file as is_whole_file
from ._models import load_layers as load_layers
from ._models import load_model as load_model
from ._models import save_model as save_model
from ._module import Weights as Weights
from ._state_dict import from_state_dict as from_state_dict
from ._state_dict import to_state_dict as to_state_dict
