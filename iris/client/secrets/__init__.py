"""Secrets of users: sealed on the user's machine, and kept by name."""

from typing import TYPE_CHECKING

from iris.lazy import modules_of

if TYPE_CHECKING:
    from iris.client.secrets import named as named
    from iris.client.secrets import sealing as sealing
else:
    __getattr__ = modules_of(__name__)
