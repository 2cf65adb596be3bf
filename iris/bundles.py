"""A bundle: the files of a workspace as they were when a job was submitted, packed and named by their content."""

import re

from pydantic import BaseModel, ConfigDict, Field, field_validator

from iris.errors import InvalidValue
from iris.units import MIB

#: The most that a packed workspace may have, unpacked: it travels to every host of a job. Data belongs into a bucket.
MAX_BUNDLE = 100 * MIB


class Bundle(BaseModel):
    """Which bundle a job runs in."""

    model_config = ConfigDict(frozen=True)

    #: Of the bundle's tar archive, uncompressed: the same files have the same one, whoever packs them and whenever.
    sha256: str
    #: Of that archive, in bytes.
    size: int = Field(default=0, ge=0)

    @field_validator("sha256")
    @classmethod
    def _is_a_hash(cls, sha256: str) -> str:
        if re.fullmatch("[0-9a-f]{64}", sha256) is None:
            raise InvalidValue("bundle", sha256, "is not a SHA-256", "give the 64 hexadecimal digits that name a bundle")
        return sha256
