"""Names of container images."""

import re

_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}\Z")


def has_digest(image: str) -> bool:
    """Returns whether the name gives the image's content. A tag can be changed to another image."""
    return _DIGEST.search(image) is not None
