"""Base classes and small messages that the other message modules share."""

from pydantic import BaseModel, ConfigDict


class Wire(BaseModel):
    model_config = ConfigDict(frozen=True)


class Keys(Wire):
    keys: tuple[str, ...] = ()


class ClusterName(Wire):
    cluster: str
