"""The base class of values."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A validated value that cannot be changed; `model_copy(update=…)` makes a changed one."""

    model_config = ConfigDict(frozen=True)
