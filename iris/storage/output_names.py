"""Converts the paths of output files to names of objects and back. The conversion is one-to-one."""

import os
import re
from pathlib import PurePath, PurePosixPath
from urllib.parse import unquote_to_bytes

from iris.model.errors import InvalidValue

#: Matches the characters of a path that are encoded in an object's name: those that some stores
#: refuse, and `%`, which marks an encoded character. Surrogates stand for bytes that are not UTF-8.
_ODD = re.compile("[%#\\\\\x00-\x1f\x7f\ud800-\udfff]")


def object_name(path: PurePath) -> str:
    """Returns the object's name for a path. Characters that some stores refuse are
    percent-encoded.
    """
    return "/".join(_ODD.sub(_encoded, part) for part in path.parts)


def path_of(name: str) -> PurePosixPath:
    """Returns the path for an object's name.

    Raises:
        InvalidValue: the name does not come from `object_name`: its path would lead out of the
            directory.
    """
    parts = [os.fsdecode(unquote_to_bytes(part)) for part in name.split("/")]
    if any(part in ("", ".", "..") or "/" in part or "\0" in part for part in parts):
        raise InvalidValue(
            "output",
            name,
            "is not a name that Iris gives to an object in the store",
            "find the program that wrote the object, and delete the object",
        )
    return PurePosixPath(*parts)


def _encoded(odd: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in os.fsencode(odd[0]))
