"""The roll of a cluster: what a scheduler that has lost its book is told by slices and gangs."""

from pydantic import BaseModel, ConfigDict

from iris.gangs import Placement, Request
from iris.hosts import Host


class RollPage(BaseModel):
    """Which part of a cluster's workflows to ask."""

    model_config = ConfigDict(frozen=True)

    cluster: str
    #: Where the part before ended; empty for the first.
    token: str = ""


class Claim(BaseModel):
    """What a gang waits for or holds: at most one of them."""

    model_config = ConfigDict(frozen=True)

    request: Request | None = None
    held: bool = False
    placement: Placement | None = None


class Roll(BaseModel):
    """What slices and gangs have and hold."""

    model_config = ConfigDict(frozen=True)

    hosts: tuple[Host, ...] = ()
    claims: tuple[Claim, ...] = ()
    #: Where the next part begins; empty when this was the last.
    token: str = ""
