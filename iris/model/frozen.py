"""The base class of all values."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A validated, immutable value. `model_copy(update=…)` makes a changed copy."""

    model_config = ConfigDict(frozen=True)
