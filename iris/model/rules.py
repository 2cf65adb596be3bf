"""The rules of a cluster's scheduler."""

from datetime import timedelta

from pydantic import BaseModel, ConfigDict, Field

from iris.model.units import MAX_DURATION


class Rules(BaseModel):
    """The scheduler settings that operators choose."""

    model_config = ConfigDict(frozen=True)

    #: How long smaller gangs may overtake a gang that would fit an empty host. After that, hosts are reserved for it.
    patience: timedelta = Field(default=timedelta(minutes=10), ge=timedelta(0), le=MAX_DURATION)
    #: A user who received nothing for this long is served next: what the user holds no longer delays the turn.
    owed_after: timedelta = Field(default=timedelta(hours=1), ge=timedelta(0), le=MAX_DURATION)
    #: Whether gangs of higher bands evict gangs of lower bands.
    preemption: bool = True
    #: A gang that has run for less is not evicted, so that a victim makes progress between two evictions.
    min_run_time: timedelta = Field(default=timedelta(minutes=2), ge=timedelta(0), le=MAX_DURATION)
