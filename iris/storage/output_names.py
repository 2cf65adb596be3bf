"""Names the objects of output files. Every path of a file has one name, and every such name one
path.
"""

import os
import re
from pathlib import PurePath, PurePosixPath
from urllib.parse import unquote_to_bytes

from iris.model.errors import InvalidValue

#: Characters of a file's name that some store does not allow in an object's name, and `%`, which
#: marks an encoded character. Bytes that are not UTF-8 are surrogates in Python.
_ODD = re.compile("[%#\\\\\x00-\x1f\x7f\ud800-\udfff]")


def object_name(path: PurePath) -> str:
    """Returns the path as part of an object's name. Characters that some store refuses are
    percent-encoded.
    """
    return "/".join(_ODD.sub(_encoded, part) for part in path.parts)


def path_of(name: str) -> PurePosixPath:
    """Returns the path from which `object_name` made the name.

    Raises:
        InvalidValue: `object_name` does not make such a name: its path would lead out of the
            directory.
    """
    parts = [os.fsdecode(unquote_to_bytes(part)) for part in name.split("/")]
    if any(part in ("", ".", "..") or "/" in part or "\0" in part for part in parts):
        raise InvalidValue(
            "output", name, "is not the path of a file below a directory", "check what wrote it"
        )
    return PurePosixPath(*parts)


def _encoded(odd: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in os.fsencode(odd[0]))
