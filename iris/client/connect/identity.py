"""Identifies the current user, a cluster by its uid, and the job that a user names."""

import contextlib
import getpass
import os
import re
import secrets
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING

from iris.client import access
from iris.client.connect.paths import has_identity
from iris.model import names, store_paths
from iris.model.errors import InvalidValue, Unreachable, first_line

if TYPE_CHECKING:
    from iris.storage.object_store import Store

#: The number of random bytes in a cluster's uid. Eight are enough that two clusters never get the
#: same uid.
UID_BYTES = 8


#: The user that `current_user` returns inside an `acting_as` block; empty outside of such a block.
_acting: ContextVar[str] = ContextVar("_acting", default="")


@contextlib.contextmanager
def acting_as(user: str) -> Iterator[None]:
    """Makes `current_user` return this user in the block, for a process that acts for others."""
    token = _acting.set(names.check_name("user", user))
    try:
        yield
    finally:
        _acting.reset(token)


def current_user() -> str:
    """Returns the user of new jobs: `IRIS_USER`, or else the name of the identity, or else the
    login name, without the characters that an id cannot have.

    Raises:
        InvalidValue: `IRIS_USER` is no name, or the identity cannot be used.
    """
    if acting := _acting.get():
        return acting
    if explicit := os.environ.get(names.ENV_USER):
        return names.check_name(names.ENV_USER, explicit)
    # A machine may have the identity of a host only, whose name is no user's.
    own = access.identity_file.own_identity() if has_identity() else None
    if own is not None and names.is_name(own.name):
        return own.name
    try:
        login = getpass.getuser()
    except (KeyError, OSError):  # the uid has no name, as in containers
        login = f"uid-{os.getuid()}"
    return re.sub(r"[^a-zA-Z0-9._-]", "-", login).strip("._-")[: names.MAX_NAME] or "user"


def signed(reason: str) -> str:
    """Returns the reason of an operator with the name of the current user."""
    return f"{reason} (by {current_user()})" if reason else f"by {current_user()}"


def in_a_job() -> bool:
    """Returns whether the program runs in a job, of which a bare name may mean a child
    (`iris.client.jobs.find`).
    """
    return names.ENV_JOB_ID in os.environ


def full_job_id(job: str) -> str:
    """Returns the job id for `name` (a job of the current user), `user/name`, or `user/name/child`.

    Raises:
        InvalidValue: the text has another form.
    """
    user, *path = job.split("/") if "/" in job else (current_user(), job)
    return "/".join(names.check_name("job", part) for part in (user, *path))


def job_and_run(job: str) -> tuple[str, int | None]:
    """Splits off the number of a run: `train#2:3` gives `train:3` and 2. The number is None if the
    text has no number.

    Raises:
        InvalidValue: the text after `#` is not the number of a run.
    """
    name, mark, rest = job.partition("#")
    number, colon, task = rest.partition(":")
    if mark and re.fullmatch("[1-9][0-9]{0,8}", number) is None:
        raise InvalidValue(
            "job", job, "does not name a run", "write NAME#NUMBER, as `iris jobs --all` shows it"
        )
    return f"{name}{colon}{task}" if mark else job, int(number) if mark else None


async def cluster_uid(store: "Store", cluster: str) -> str:
    """Returns the cluster's uid, and creates it if the store has none. Only the start of a cluster
    uses this function; everything else uses `known_uid`.

    The uid distinguishes the cluster's machines from the machines of another cluster with the same
    name. It is a random number, created once and kept in the cluster's store.

    Raises:
        Unreachable: the store cannot be read or written, so the cluster's machines cannot be
            identified.
    """
    path = store_paths.cluster_uid(cluster)
    with _using(store):
        if (found := await store.get(path)) is None:
            await store.put_new(path, secrets.token_hex(UID_BYTES).encode())
            found = await store.get(path)
    if found is None:
        raise Unreachable(
            f"an object was written to the store {store.url} and cannot be found there; check"
            " controller.bundle_prefix"
        )
    return found.decode()


async def known_uid(store: "Store", cluster: str) -> str:
    """Returns the uid of a cluster that was started before. Changes nothing.

    Raises:
        Unreachable: the store has no uid of the cluster, so the cluster was never started with this
            store; or the store cannot be read.
    """
    found = await find_uid(store, cluster)
    if found is None:
        raise Unreachable(
            f"no cluster {cluster} was ever started with bundle_prefix {store.url}, so none"
            " of the machines can be identified as its own"
        )
    return found


async def find_uid(store: "Store", cluster: str) -> str | None:
    """Returns the uid of a cluster; None if the cluster was never started with this store.

    Raises:
        Unreachable: the store cannot be read.
    """
    with _using(store):
        found = await store.get(store_paths.cluster_uid(cluster))
    return found.decode() if found is not None else None


@contextlib.contextmanager
def _using(store: "Store") -> Iterator[None]:
    """Converts errors of the store to `Unreachable`."""
    from obstore.exceptions import BaseError  # most commands use no store

    try:
        yield
    except Unreachable:  # its directory does not exist
        raise
    except (OSError, BaseError) as error:
        raise Unreachable(
            f"the store {store.url} cannot be used: {first_line(error)}; see"
            " controller.bundle_prefix"
        ) from None
