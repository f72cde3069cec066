"""Analysis: measurements on runs and models, without any help from theory."""

from ._alignment import Alignment as Alignment
from ._alignment import alignment as alignment
from ._alignment import learned_components as learned_components
from ._alignment import learning_order as learning_order
from ._alignment import learning_times as learning_times
from ._balance import Balance as Balance
from ._balance import balancedness as balancedness
from ._drops import drop_times as drop_times
from ._drops import passage_times as passage_times
from ._plateaus import Plateau as Plateau
from ._plateaus import drop_count as drop_count
from ._plateaus import plateaus as plateaus
from ._saddles import HessianSpectrum as HessianSpectrum
from ._saddles import StationaryPoints as StationaryPoints
from ._saddles import find_stationary_points as find_stationary_points
from ._saddles import hessian_spectrum as hessian_spectrum
from ._shape import ExponentialFit as ExponentialFit
from ._shape import exponential_fit as exponential_fit
from ._shape import plateau_fraction as plateau_fraction
from ._shape import sharpness as sharpness
from ._which_algorithm import Algorithm as Algorithm
from ._which_algorithm import Match as Match
from ._which_algorithm import known_estimators as known_estimators
from ._which_algorithm import which_algorithm as which_algorithm
