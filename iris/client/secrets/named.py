"""Named secrets of users: values in the store of a cluster, sealed so that only the cluster's
agents can read them.
"""

from dataclasses import dataclass
from datetime import datetime

from pydantic import ValidationError

from iris.client.connect.identity import current_user
from iris.client.connect.rpc import Connection
from iris.client.logs.follow import reading_from
from iris.client.secrets.sealing import check_value, put_sealed
from iris.model import store_paths
from iris.model.errors import NotFound
from iris.model.job.secrets import check_secret_name
from iris.model.sealed import MAX_OBJECT_BYTES, SealedObject
from iris.storage.object_store import Store

_STORED = "the named secrets"


@dataclass(frozen=True)
class NamedSecret:
    """A named secret as a list shows it, without its value. Only programs of jobs can read the
    value.

    Args:
        user: the user whose jobs can use the secret.
        by: the user who set the secret.
        at: the time at which the secret was set.
    """

    name: str
    user: str
    by: str
    at: datetime


class SecretsClient:
    """The named secrets of the current user on one cluster."""

    def __init__(self, connection: Connection) -> None:
        self._cluster = connection.record.name
        self._store = Store(connection.record.store)

    async def set(self, name: str, value: str | bytes) -> NamedSecret:
        """Sets a secret for jobs of the current user: `secret=["NAME"]`. Replaces its earlier
        value.

        The value is sealed on this machine. A program gets the value that is set when its attempt
        starts.

        Args:
            value: at most 64 KiB. A line end at its end is left out.

        Raises:
            InvalidValue: a variable cannot have this name or value.
            Rejected: the cluster has no key for secrets.
            IrisError: the store does not answer.
        """
        value = value.encode(errors="surrogateescape") if isinstance(value, str) else value
        path = store_paths.sealed_by_user(current_user(), check_secret_name(name))
        with reading_from(self._store, _STORED):
            await put_sealed(
                self._store, self._cluster, path, {name: check_value(name, value, "the one given")}
            )
            found = await self._found(path)
        if found is None:
            raise NotFound(
                f"the secret was written to the store {self._store.url} and cannot be found there"
            )
        return found

    async def list(self) -> list[NamedSecret]:
        """Returns the secrets of the current user in the order of their names, without values.

        Raises:
            IrisError: the store does not answer.
        """
        folder = store_paths.sealed_object(
            self._cluster, store_paths.sealed_by_user(current_user(), "")
        )
        with reading_from(self._store, _STORED):
            paths = [
                path.removeprefix(store_paths.sealed_object(self._cluster, ""))
                for path in await self._store.objects(folder)
            ]
            found = [await self._found(path) for path in paths]
        return [each for each in found if each is not None]

    async def remove(self, name: str) -> None:
        """Deletes a secret of the current user. Running programs keep its value; attempts that
        start later fail.

        Raises:
            InvalidValue: a secret cannot have this name.
            NotFound: there is no such secret.
            IrisError: the store does not answer.
        """
        path = store_paths.sealed_object(
            self._cluster, store_paths.sealed_by_user(current_user(), check_secret_name(name))
        )
        with reading_from(self._store, _STORED):
            if await self._store.modified(path) is None:
                remedy = "list yours with `iris secret list`"
                raise NotFound(
                    f"{current_user()} has no named secret {name} on cluster {self._cluster};"
                    f" {remedy}"
                )
            await self._store.delete([path])

    async def _found(self, path: str) -> NamedSecret | None:
        stored = await self._store.get(
            store_paths.sealed_object(self._cluster, path), MAX_OBJECT_BYTES
        )
        if stored is None:
            return None
        _, user, name = path.split("/")
        try:
            sealed = SealedObject.model_validate_json(stored)
        except ValidationError:  # it was changed by hand
            return None
        return NamedSecret(name, user, sealed.by, sealed.at)
