"""Seals the secrets of a submitter for a cluster, before they leave the submitter's machine.

A job has only references: to an object of the store with its sealed values, or to a named secret of
its user. The values are in the memory of this process while it seals them.
"""

import contextlib
import os
import secrets
import stat
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from temporalio.exceptions import WorkflowAlreadyStartedError

from iris.client import access
from iris.client.connect.clusters import ClusterRecord
from iris.client.connect.identity import current_user
from iris.client.connect.secret_keys import public_key
from iris.client.logs.follow import reading_from
from iris.model import names, store_paths
from iris.model.errors import InvalidValue, NotFound, Rejected
from iris.model.job.secrets import (
    MAX_VALUE_BYTES,
    OF_SUBMITTER,
    SecretKind,
    SecretSource,
    parse_secret_source,
)
from iris.model.job.spec import JobSpec
from iris.storage.object_store import Store

#: The number of random bytes in the name of a sealed object. The random bytes make the name unique
#: among the runs of a job.
_TOKEN_BYTES = 16
#: The length in bytes of the random key that the sender makes for each secret value.
_OWN_KEY_BYTES = 32
_STORED = "the secrets"


def of_submitter(spec: JobSpec) -> dict[str, SecretSource]:
    """Returns the secrets of a job that only its submitter's client can look up."""
    parsed = {name: parse_secret_source(name, source) for name, source in spec.secrets.items()}
    return {name: source for name, source in parsed.items() if source.kind in OF_SUBMITTER}


async def check_secrets(record: ClusterRecord, spec: JobSpec) -> list[str]:
    """Checks that the secrets of a job's submitter exist, before the job's files are sent. Returns
    warnings.

    Raises:
        InvalidValue: a variable is not set here, a file cannot be read, or a variable cannot have
            the value.
        NotFound: there is no such named secret.
        Rejected: the cluster has no key for secrets.
        IrisError: the store does not answer.
    """
    warnings = []
    if given := of_submitter(spec):
        store = Store(record.store)
        with reading_from(store, _STORED):
            await public_key(store, record.name)
            for name, source in given.items():
                value = _value(record, spec, name, source)
                if value is None:
                    await _check_named(store, record.name, spec.user, name, source)
                elif source.kind is SecretKind.OWN and await is_named(
                    store, record.name, spec.user, source.name
                ):
                    warnings.append(
                        f"{source.name} is set here and is also one of your named secrets; the job"
                        " gets the value that is set here (for the other one:"
                        f" {name}=secret:{source.name})"
                    )
    return warnings


@contextlib.asynccontextmanager
async def sealing(
    record: ClusterRecord,
    spec: JobSpec,
    folder: Callable[[str, str], str] = store_paths.sealed_for_job,
) -> AsyncIterator[JobSpec]:
    """Writes the sealed values to the store, and yields the job with references to them. Deletes
    the values if the block fails because the job does not start.

    Args:
        folder: returns the path of the values: `store_paths.sealed_for_job` or
            `store_paths.sealed_for_schedule`.

    Raises:
        InvalidValue, NotFound, Rejected, IrisError: as for `check_secrets`.
    """
    given = of_submitter(spec)
    if not given:
        yield spec
        return
    store, path = Store(record.store), folder(spec.id, secrets.token_hex(_TOKEN_BYTES))
    values: dict[str, bytes] = {}
    references = dict(spec.secrets)
    with reading_from(store, _STORED):
        for name, source in given.items():
            if (value := _value(record, spec, name, source)) is None:
                await _check_named(store, record.name, spec.user, name, source)
                references[name] = _reference(store_paths.sealed_by_user(spec.user, source.name))
            else:
                values[name] = value
                references[name] = _reference(path)
        if values:
            await put_sealed(store, record.name, path, values)
    try:
        yield spec.model_copy(update={"secrets": references})
    except (Rejected, NotFound, WorkflowAlreadyStartedError):
        # After other errors, the job may have started.
        if values:
            with contextlib.suppress(Exception):  # the control plane deletes values that remain
                await store.delete([store_paths.sealed_object(record.name, path)])
        raise


async def put_sealed(store: Store, cluster: str, path: str, values: Mapping[str, bytes]) -> None:
    """Seals values and writes their object.

    Raises:
        Rejected: the cluster has no key for secrets.
        OSError, BaseError: the store does not answer.
    """
    from iris.model.sealed import Place, SealedObject, seal

    public = await public_key(store, cluster)
    make = partial(seal, public)
    found = {
        name: make(value, Place(cluster, path, name), os.urandom(_OWN_KEY_BYTES))
        for name, value in values.items()
    }
    sealed = SealedObject(by=current_user(), at=datetime.now(UTC), values=found)
    await store.put(store_paths.sealed_object(cluster, path), sealed.model_dump_json().encode())


async def delete_secrets(record: ClusterRecord, folder: str) -> None:
    """Deletes the sealed values in a folder.

    Raises:
        IrisError: the store does not answer.
    """
    store = Store(record.store)
    with reading_from(store, _STORED):
        await store.delete(
            await store.objects(store_paths.sealed_object(record.name, folder).rstrip("/"))
        )


def check_value(name: str, value: bytes, where: str) -> bytes:
    """Returns the value of a secret without a final line end, which editors and `echo` add.

    Args:
        where: the source of the value, for errors, which do not show the value.

    Raises:
        InvalidValue: a variable cannot have the value.
    """
    value = value.removesuffix(b"\n").removesuffix(b"\r")
    problem = ""
    if not value:
        problem = "is empty"
    elif b"\0" in value:
        problem = "contains a NUL byte, which no variable can have"
    elif len(value) > MAX_VALUE_BYTES:
        problem = f"is larger than {MAX_VALUE_BYTES // 1024} KiB"
    if problem:
        raise InvalidValue(
            "secret",
            name,
            f"cannot have the value of {where}: it {problem}",
            "give it another value",
        )
    return value


def read_value(name: str, path: Path) -> bytes:
    """Returns the value of a secret in a file of this machine.

    Raises:
        InvalidValue: the file cannot be read, or a variable cannot have its content.
    """
    try:
        # Without O_NONBLOCK, opening a pipe would block.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            regular = stat.S_ISREG(os.fstat(file).st_mode)
            value = os.read(file, MAX_VALUE_BYTES + 3) if regular else b""
        finally:
            os.close(file)
    except (OSError, ValueError) as error:
        raise _unreadable(name, path, getattr(error, "strerror", None) or str(error)) from None
    if not regular:
        raise _unreadable(name, path, "it is not a regular file")
    return check_value(name, value, str(path))


def _unreadable(name: str, path: Path, why: str) -> InvalidValue:
    remedy = f"name a file of this machine, or {name}=host-file:/PATH for one that the host has"
    return InvalidValue(
        "secret",
        name,
        f"is to have the content of {path}, which cannot be read on this machine: {why}",
        remedy,
    )


def _value(record: ClusterRecord, spec: JobSpec, name: str, source: SecretSource) -> bytes | None:
    """Returns the value of a secret that this machine has. Returns None for a named secret."""
    if name == names.ENV_JOB_IDENTITY:
        return access.token_sources.new_job_identity(spec.id, record.address)
    if source.kind is SecretKind.FILE:
        return read_value(name, Path(source.name).expanduser())
    value = (
        os.environb.get(os.fsencode(source.name)) if source.kind is not SecretKind.NAMED else None
    )
    if value is not None:
        if not value:
            problem = f"is to have the value of the variable {source.name}, which is empty here"
            raise InvalidValue("secret", name, problem, f"set it: export {source.name}=…")
        return check_value(name, value, f"the variable {source.name}")
    if source.kind is SecretKind.ENV:
        raise _not_set(name, source.name)
    return None


def _not_set(name: str, variable: str, also: str = "") -> InvalidValue:
    keep = f"keep it with `iris secret set {variable}`, " if also else ""
    of_host = f"{name}=host-env:VARIABLE or {name}=host-file:/PATH of the host, {name}=gcp:SECRET"
    problem = f"is to have the value of the variable {variable}, which is not set here{also}"
    return InvalidValue(
        "secret",
        name,
        problem,
        f"export it, {keep}or name another source: {name}=file:PATH, {of_host}",
    )


async def is_named(store: Store, cluster: str, user: str, name: str) -> bool:
    """Returns whether the user has a named secret of this name."""
    return (
        await store.modified(
            store_paths.sealed_object(cluster, store_paths.sealed_by_user(user, name))
        )
        is not None
    )


async def _check_named(
    store: Store, cluster: str, user: str, name: str, source: SecretSource
) -> None:
    if await is_named(store, cluster, user, source.name):
        return
    if source.kind is SecretKind.OWN:
        raise _not_set(name, source.name, f", and you have no named secret {source.name}")
    remedy = f"make it with `iris secret set {source.name}`, or list yours with `iris secret list`"
    raise NotFound(
        f"secret {name}: {user} has no named secret {source.name} on cluster {cluster}; {remedy}"
    )


def _reference(path: str) -> str:
    return str(SecretSource(SecretKind.SEALED, path))
