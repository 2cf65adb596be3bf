"""Looks up the values of a job's secrets on its host: in the agent's environment and files, in
Google Secret Manager, and among the values that submitters have sealed in the cluster's store.

A value stays in the agent's memory until the program's shim has it. It is never in an error, a log
or a file of the agent.
"""

import asyncio
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pydantic import SecretStr, ValidationError

from iris.activities.host.runtimes.base import NETWORK_FAULT, STORE_FAULT, HostFault, JobFault
from iris.model import names, store_paths
from iris.model.job.secrets import (
    AGENT_PREFIXES,
    MAX_VALUE_BYTES,
    SecretKind,
    SecretSource,
    parse_secret_source,
    resource_of,
    sealed_entry,
    shown_source,
    why_not,
    why_not_sealed,
)
from iris.platforms.base import BadConfig, PlatformError
from iris.storage.files import open_to_others
from iris.storage.object_store import STORE_ERRORS, Store

#: The exit code of a job whose secret cannot be used.
EXIT_CODE = 126
#: The system's directories whose files cannot be secrets, because they show the state of processes,
#: such as the agent's environment.
_OF_THE_SYSTEM = ("/proc/", "/sys/", "/dev/")


class Unusable(Exception):
    """The error if the value of a secret cannot be used on any host. The text is the reason."""


class SecretManager(Protocol):
    """A client of Google Secret Manager with the credentials of this host. The methods block."""

    def project(self) -> str:
        """Returns the host's own project.

        Raises:
            BadConfig: the host has no credentials or no project.
        """

    def access(self, resource: str) -> bytes:
        """Returns the value of `projects/P/secrets/S/versions/V`.

        Raises:
            BadConfig: the secret does not exist, or this host may not read it.
            Unavailable: Google does not answer.
        """


@dataclass(frozen=True)
class SealedValues:
    """Decrypts the sealed (encrypted) values of secrets in the store of one cluster."""

    cluster: str = ""
    #: The cluster's store. If it is None, this host decrypts no sealed value.
    store: Store | None = None
    #: The agent's environment. One of its variables names the file with the private keys.
    env: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    async def value(self, variable: str, path: str, job: str) -> bytes:
        """Returns the value of a job's variable.

        Args:
            path: the object with the value, as in a `SecretSource`.

        Raises:
            Unusable: the object is gone, is not for this job or was changed, or this host does not
                have the key.
            OSError, BaseError: the store does not answer.
        """
        if why := why_not_sealed(path, job):
            raise Unusable(why)
        private = self._keys()
        if self.store is None:
            raise Unusable(
                "its value is in the cluster's store, and the agent of this host is configured"
                " without a store"
            )

        from iris.model import sealed  # few jobs have such secrets

        entry = sealed_entry(path, variable)
        stored = await self.store.get(
            store_paths.sealed_object(self.cluster, path), sealed.MAX_OBJECT_BYTES
        )
        if stored is None:
            raise Unusable(
                "its value is not in the store any more: it was deleted, or its job has ended"
            )
        try:
            found = sealed.SealedObject.model_validate_json(stored).values.get(entry)
            if found is None:
                raise Unusable(f"the stored object with the sealed values has no value for {entry}")
            return sealed.parse_keys(private, "").open(
                found, sealed.Place(self.cluster, path, entry)
            )
        except sealed.SealedWith as error:
            file = self.env[names.ENV_SECRET_KEYS]
            remedy = "set it again, or bring the keys of this host up to date"
            raise Unusable(
                f"its value was sealed with the key {error}, which is not in {file} on this host;"
                f" {remedy}"
            ) from None
        except ValidationError:
            raise Unusable(
                "the object in the store with its sealed value is damaged; set the secret again, or"
                " submit the job again"
            ) from None
        except ValueError as error:
            raise Unusable(str(error)) from None

    def _keys(self) -> str:
        """Returns the content of the file of keys."""
        file = self.env.get(names.ENV_SECRET_KEYS, "")
        if not file:
            remedy = f"start it with {names.ENV_SECRET_KEYS}=FILE, the file with the cluster's keys"
            raise Unusable(f"the agent of this host has no keys for the secrets of users; {remedy}")
        try:
            if open_to_others(Path(file)):
                raise Unusable(
                    f"the keys in {file} are open to other users of the host; close the file: chmod"
                    f" 600 {file}"
                )
            return Path(file).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise Unusable(f"the agent of this host cannot read its keys: {error}") from None


def _no_manager() -> SecretManager:
    raise ImportError


@dataclass(frozen=True)
class HostSecrets:
    """Reads the secrets that jobs may use on this host."""

    #: The secrets that the configuration (`bootstrap.secrets`) lets jobs use: references to their
    #: sources, or beginnings of references followed by `*`.
    allowed: Sequence[str] = ()
    #: Returns the client of Secret Manager. Raises ImportError if the agent is installed without
    #: Google's libraries.
    manager: Callable[[], SecretManager] = field(default=_no_manager, repr=False)
    #: The agent's environment. Its values do not show when this object is printed.
    env: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    #: The agent's own directories and files. No job may use a file in them as a secret.
    own: Sequence[Path] = ()
    #: Decrypts the values of secrets that submitters have sealed (encrypted).
    sealed: SealedValues = field(default_factory=SealedValues, repr=False)

    async def values(self, secrets: Mapping[str, str], job: str) -> dict[str, SecretStr]:
        """Returns the values of a job's secrets, by the variables of its program.

        Args:
            job: the id of the job.

        Raises:
            JobFault: a secret does not exist here, is not allowed, or cannot be the value of a
                variable. The message names the secret and its source.
            HostFault: Google or the store does not answer. Google is outside the cluster and the
                store is a part of it, so they have different faults.
        """
        return {
            name: SecretStr(await self._value(name, source, job))
            for name, source in secrets.items()
        }

    async def _value(self, name: str, text: str, job: str) -> str:
        source = parse_secret_source(name, text)
        try:
            if source.kind is SecretKind.SEALED:
                value = os.fsdecode(await self.sealed.value(name, source.name, job))
            else:
                value = await asyncio.to_thread(self._looked_up, source)
            if not value or "\0" in value:
                raise Unusable(
                    "its value is empty"
                    if not value
                    else "its value contains a NUL byte, which no variable can have"
                )
            if len(os.fsencode(value)) > MAX_VALUE_BYTES:
                raise Unusable(f"its value is larger than {MAX_VALUE_BYTES // 1024} KiB")
        except (Unusable, BadConfig) as error:
            raise JobFault(
                f"secret {name} ({shown_source(text)}) cannot be used: {error}", EXIT_CODE
            ) from None
        except (PlatformError, *STORE_ERRORS) as error:
            fault = NETWORK_FAULT if isinstance(error, PlatformError) else STORE_FAULT
            raise HostFault(
                f"secret {name} ({shown_source(text)}) could not be read: {error}", fault
            ) from None
        return value

    def _looked_up(self, source: SecretSource) -> str:
        match source.kind:
            case SecretKind.HOST_ENV:
                return self._of_env(source)
            case SecretKind.HOST_FILE:
                return self._of_file(source)
            case SecretKind.GCP:
                return self._of_google(source)
        raise Unusable(
            "its value is on the submitter's machine, and the client that submitted the job has not"
            " sealed it"
        )

    def _of_env(self, source: SecretSource) -> str:
        self._check(source)
        if source.name not in self.env:
            raise Unusable("the agent of this host has no such variable")
        return self.env[source.name]

    def _of_file(self, source: SecretSource) -> str:
        self._check(source)
        try:
            # Without O_NONBLOCK, opening a pipe would block.
            file = os.open(source.name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            raise Unusable(
                f"the file cannot be read on this host: {getattr(error, 'strerror', None) or error}"
            ) from None
        try:
            self._check_path(_path_of(file, source.name))
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise Unusable("its source is not a regular file")
            return _decoded(os.read(file, MAX_VALUE_BYTES + 2))
        except OSError as error:
            raise Unusable(f"the file cannot be read on this host: {error.strerror}") from None
        finally:
            os.close(file)

    def _of_google(self, source: SecretSource) -> str:
        try:
            manager = self.manager()
        except ImportError:
            raise Unusable(
                "the agent of this host was installed without iris-temporal[secrets]"
            ) from None
        whole = source if "/" in source.name else resource_of(source, manager.project())
        self._check(whole)
        return _decoded(manager.access(whole.name))

    def _check(self, source: SecretSource) -> None:
        if why := why_not(source, self.allowed):
            raise Unusable(why)

    def _check_path(self, path: str) -> None:
        """Checks the path of the file that was opened, because the configured path may contain
        links that a job has made.
        """
        self._check(SecretSource(SecretKind.HOST_FILE, path))
        if path.startswith(_OF_THE_SYSTEM):
            raise Unusable(
                "its source is a file of the operating system, which no job may use as a secret"
            )
        if any(Path(path).is_relative_to(directory.resolve()) for directory in self.own):
            raise Unusable("its source is a file of the agent, which no job may use as a secret")
        credentials = {
            os.path.realpath(value)
            for name, value in self.env.items()
            if name.startswith(AGENT_PREFIXES)
        }
        if path in credentials:
            raise Unusable("the file holds a credential of the agent itself, which no job gets")


def _path_of(file: int, name: str) -> str:
    """Returns the path of an open file, with all links resolved."""
    link = Path("/proc/self/fd", str(file))
    return str(link.readlink() if link.is_symlink() else Path(name).resolve())


def _decoded(data: bytes) -> str:
    """Returns a value as text without the line end that editors and `echo` add."""
    return os.fsdecode(data).removesuffix("\n").removesuffix("\r")
