"""Identities: the key of this machine's user, the tokens that connections send, and the policy file
of a cluster. Without an identity, no connection imports anything of it.
"""

from typing import TYPE_CHECKING

from iris.lazy import modules_of

if TYPE_CHECKING:
    from iris.client.access import identity_file as identity_file
    from iris.client.access import token_sources as token_sources
else:
    __getattr__ = modules_of(__name__)
