"""Who I am, which cluster this is among those of its name, and which job is meant."""

import contextlib
import getpass
import os
import re
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING

from obstore.exceptions import BaseError

from iris import names
from iris.errors import InvalidValue, Unreachable, first_line

if TYPE_CHECKING:
    from iris.store import Store

#: As many that two clusters never have the same.
UID_BYTES = 8


def current_user() -> str:
    """Whose jobs these are: `IRIS_USER`, else the login name as far as it can be part of an id."""
    if explicit := os.environ.get(names.ENV_USER):
        return names.check_name(names.ENV_USER, explicit)
    try:
        login = getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as in containers
        login = f"uid-{os.getuid()}"
    return re.sub(r"[^a-zA-Z0-9._-]", "-", login).strip("._-")[: names.MAX_NAME] or "user"


def signed(reason: str) -> str:
    """What an operator says of a deed, and who that is."""
    return f"{reason} (by {current_user()})" if reason else f"by {current_user()}"


def full_job_id(job: str) -> str:
    """The id of `name` (one of mine) or `user/name`.

    Raises:
        InvalidValue: it is neither.
    """
    user, slash, name = job.partition("/")
    if not slash:
        user, name = current_user(), job
    if "/" in name:
        raise InvalidValue("job", job, "is not a job", "write NAME or USER/NAME")
    return names.job_id(names.check_name("job", user), names.check_name("job", name))


async def cluster_uid(store: "Store", cluster: str) -> str:
    """What tells this cluster's machines from those of another of its name: chosen at random once, the same for all who share the
    cluster's store. For whoever starts it; others ask `known_uid`.

    Raises:
        Unreachable: the store cannot be read or written, so that nobody can know what belongs to the cluster.
    """
    path = names.cluster_uid(cluster)
    with _using(store):
        if (found := await store.get(path)) is None:
            await store.put_new(path, secrets.token_hex(UID_BYTES).encode())
            found = await store.get(path)
    if found is None:
        raise Unreachable(f"the store {store.url} does not keep what is written; see controller.bundle_prefix")
    return found.decode()


async def known_uid(store: "Store", cluster: str) -> str:
    """The same, of a cluster that was started at some time. Changes nothing.

    Raises:
        Unreachable: it never was, as far as this store knows, or the store cannot be read.
    """
    with _using(store):
        found = await store.get(names.cluster_uid(cluster))
    if found is None:
        raise Unreachable(f"no cluster {cluster} was ever started with bundle_prefix {store.url}: nothing can be its own")
    return found.decode()


@contextlib.contextmanager
def _using(store: "Store") -> Iterator[None]:
    try:
        yield
    except (OSError, BaseError) as error:
        raise Unreachable(f"the store {store.url} cannot be used: {first_line(error)}; see controller.bundle_prefix") from None
