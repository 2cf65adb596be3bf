"""Keys in base64, as files and variables contain them."""

import base64
import binascii


def text_of(key: bytes) -> str:
    """Returns the key in base64."""
    return base64.b64encode(key).decode()


def key_in(text: str, size: int) -> bytes | None:
    """Returns the key in a text; None if the text is not a key of `size` bytes in base64."""
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):  # ValueError: a character is not ASCII
        return None
    return key if len(key) == size else None
