"""Names of container images."""

import re

from iris.model.errors import InvalidValue

_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}\Z")


def has_digest(image: str) -> bool:
    """Returns whether the name gives the image's content. A tag can be changed to another image."""
    return _DIGEST.search(image) is not None


def check_image(image: str) -> str:
    """Returns the name.

    Raises:
        InvalidValue: it cannot be that of a container image.
    """
    if not image or image.startswith("-") or not image.isprintable() or " " in image:
        raise InvalidValue("image", image, "is not a valid name of a container image", "write NAME[:TAG], such as python:3.11")
    return image
