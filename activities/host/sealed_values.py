"""Opens the values that submitters have sealed for a cluster, with the private keys of its agents.

The keys are read at each use, so that a rotation needs no new agent, and are never kept.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from iris.model import names
from iris.model.errors import InvalidValue
from iris.model.secrets import sealed_entry, why_not_sealed
from iris.storage.files import open_to_others
from iris.storage.object_store import Store


class CannotOpen(Exception):
    """No host can open the value, for this reason."""


@dataclass(frozen=True)
class SealedValues:
    """The sealed values in the store of one cluster."""

    cluster: str = ""
    #: None: a host without a store, which opens nothing.
    store: Store | None = None
    #: Names the file with the private keys.
    env: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    async def value(self, variable: str, path: str, job: str) -> bytes:
        """Returns the value of a job's variable.

        Args:
            path: the object that has it, as in a `SecretSource`.

        Raises:
            CannotOpen: it is gone, it is not for this job, it was changed, or this host does not have the key.
            OSError, BaseError: the store does not answer.
        """
        if why := why_not_sealed(path, job):
            raise CannotOpen(why)
        private = self._keys()
        if self.store is None:
            raise CannotOpen("the agent of this host has no store")
        from iris.model import sealed  # few jobs have such secrets

        entry = sealed_entry(path, variable)
        stored = await self.store.get(names.sealed_object(self.cluster, path), sealed.MAX_OBJECT_BYTES)
        if stored is None:
            raise CannotOpen("it is not in the store any more: it was deleted, or its job has ended")
        try:
            found = sealed.SealedObject.model_validate_json(stored).values.get(entry)
            if found is None:
                raise CannotOpen(f"the store has no value of {entry} there")
            return sealed.parse_keys(private, "").open(found, sealed.Place(self.cluster, path, entry))
        except sealed.SealedWith as error:
            file = self.env[names.ENV_SECRET_KEYS]
            remedy = "set it again, or bring the keys of this host up to date"
            raise CannotOpen(f"it was sealed with the key {error}, which is not in {file} on this host; {remedy}") from None
        except ValidationError:
            raise CannotOpen("its object in the store is malformed") from None
        except InvalidValue as error:
            raise CannotOpen(str(error)) from None
        except ValueError as error:
            raise CannotOpen(str(error)) from None

    def _keys(self) -> str:
        """Returns the content of the file of keys."""
        file = self.env.get(names.ENV_SECRET_KEYS, "")
        if not file:
            remedy = f"start it with {names.ENV_SECRET_KEYS}=FILE, the file with the cluster's keys"
            raise CannotOpen(f"the agent of this host has no keys for the secrets of users; {remedy}")
        try:
            if open_to_others(Path(file)):
                raise CannotOpen(f"the keys in {file} are open to other users of the host; close the file: chmod 600 {file}")
            return Path(file).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise CannotOpen(f"the agent of this host cannot read its keys: {error}") from None
