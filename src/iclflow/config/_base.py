"""The base of every section of a config: frozen, no unknown keys, every number checked."""

from typing import Annotated

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    Strict,
    StrictBool,
    StrictStr,
)

# Far beyond anything sensible, and far from where squares and cubes of it overflow.
LARGEST = 1e12
LARGEST_COUNT = 10**12

Number = Annotated[float, Strict(), Field(allow_inf_nan=False, ge=-LARGEST, le=LARGEST)]
NonNegative = Annotated[float, Strict(), Field(allow_inf_nan=False, ge=0, le=LARGEST)]
Positive = Annotated[float, Strict(), Field(allow_inf_nan=False, gt=0, le=LARGEST)]
Share = Annotated[float, Strict(), Field(allow_inf_nan=False, ge=0, le=1)]
BelowOne = Annotated[float, Strict(), Field(allow_inf_nan=False, ge=0, lt=1)]
Tolerance = Annotated[float, Strict(), Field(allow_inf_nan=False, gt=0, lt=1)]
Count = Annotated[int, Strict(), Field(ge=1, le=LARGEST_COUNT)]
Place = Annotated[int, Strict(), Field(ge=0, le=10**6)]
Flag = StrictBool
Text = StrictStr
Numbers = Annotated[tuple[Number, ...], Field(min_length=1)]
Matrix = Annotated[tuple[Numbers, ...], Field(min_length=1)]
# A single number means a list of one, in files as on the command line.
_AS_LIST = BeforeValidator(lambda value: value if isinstance(value, list | tuple) else (value,))
_AS_GIVEN = PlainSerializer(lambda numbers: numbers[0] if len(numbers) == 1 else list(numbers))
Counts = Annotated[tuple[Count, ...], Field(min_length=1), _AS_LIST, _AS_GIVEN]
NonNegatives = Annotated[tuple[NonNegative, ...], Field(min_length=1), _AS_LIST, _AS_GIVEN]


class Settings(BaseModel):
    """One section of a config. Values never change, and unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def given(self) -> dict:
        """All settings that have a value, as plain data; the kind of a section comes first."""
        return _put_kind_first(self.model_dump(mode="json", exclude_none=True))


def _put_kind_first(data: dict) -> dict:
    ordered = {key: data[key] for key in sorted(data, key=lambda key: key != "kind")}
    return {k: _put_kind_first(v) if isinstance(v, dict) else v for k, v in ordered.items()}
