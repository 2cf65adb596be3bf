"""Connections to machines over SSH: opened when they are needed, kept if wanted, with a limit for
every wait; and ports that are forwarded over one.

A key that is not in the known hosts is refused, and no password is ever asked for.
"""

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import asyncssh

from iris.platforms.base import BadConfig, PlatformError, Unavailable
from iris.platforms.manual.login_limits import Logins
from iris.platforms.manual.settings import HostAccess, ManualSettings, jump_of

logger = logging.getLogger(__name__)

#: The interval of SSH keepalives. A connection is closed after three keepalives without an answer.
KEEPALIVE = timedelta(seconds=15)
#: The maximum number of bytes of a command's output that an error shows.
SHOWN = 400
#: The command that runs a script in `sh`, whatever the user's login shell is.
SHELL = "exec env IRIS_SHELL=runs sh -s"
#: The first line of every script. It prints the line "iris:runs" (`RUNS`) if `SHELL` started the
#: script. The login shell may print text of its own before, so the script's own output begins after
#: that line.
FIRST_LINE = "printf '\\niris:%s\\n' \"${IRIS_SHELL-}\"; unset IRIS_SHELL\n"
RUNS, BEGIN, END, FAILED = "iris:runs", "iris:begin", "iris:end", "iris:failed "
#: The system's error texts for a full disk and for an exhausted quota. The scripts request these
#: texts in English.
FULL = ("No space left on device", "Disk quota exceeded")
#: The time for which the value of a secret is kept after it was read. Then the secret is read
#: again, so that a new version of a key is soon in use.
SECRET_VALID = timedelta(minutes=1)


class MachineFault(Unavailable):
    """The error if a machine could not be reached, or did not do what a command requested. The text
    names the machine.
    """


class UnusableMachine(MachineFault):
    """The error if a machine cannot be a host until a person changes something on it."""


class _Done(NamedTuple):
    """The result of a command that ended, or that exceeded its time limit."""

    #: The exit code; a negative number is the signal that ended the command; None if the command
    #: did not end.
    status: int | None
    output: str
    errors: str
    #: True if the command did not end within its time limit.
    late: bool = False


class Connections:
    """The SSH connections to the machines of one cluster. They belong to one event loop.

    Args:
        keep: connections stay open until `close`; else they are closed after each use.
        access: returns the value of a secret, as for `SecretFiles`; None: no setting names a
            secret.
    """

    def __init__(
        self,
        settings: ManualSettings,
        *,
        keep: bool = False,
        access: Callable[[str], bytes] | None = None,
    ) -> None:
        asyncssh.set_log_level("WARNING")  # it logs each command
        self.settings = settings
        self._keep = keep
        self._secrets = SecretFiles(access) if access is not None else None
        self._logins = Logins(self._connect)
        self._locks: dict[HostAccess, asyncio.Lock] = {}
        self._open: dict[HostAccess, asyncssh.SSHClientConnection] = {}
        self._forgotten: set[HostAccess] = set()

    @contextlib.asynccontextmanager
    async def to(
        self, host: HostAccess, *, hurried: bool = False
    ) -> AsyncIterator[asyncssh.SSHClientConnection]:
        """Yields a connection to the machine. If the caller is cancelled during the login, the
        login continues and the next call uses its connection.

        Args:
            hurried: fails at once if the machine was unreachable a moment ago.

        Raises:
            MachineFault: the machine is not reached, or does not let Iris in.
        """
        if hurried and (failure := self._logins.recent_failure(host)) is not None:
            raise failure
        async with self._locks.setdefault(host, asyncio.Lock()):
            connection = self._open.get(host)
            if connection is None or connection.is_closed():
                connection = await self._log_in(host)
                if self._keep and host not in self._forgotten:
                    self._open[host] = connection
        try:
            yield connection
        except (asyncssh.Error, ConnectionError) as error:
            connection.abort()
            raise MachineFault(f"{host}: the SSH connection broke: {error}") from None
        finally:
            if self._open.get(host) is not connection:
                connection.close()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(connection.wait_closed(), 2)

    def is_logging_in(self, host: HostAccess) -> bool:
        """Returns True while a login to the machine is in progress, also after its caller was
        cancelled.
        """
        return self._logins.is_pending(host)

    async def run(
        self,
        host: HostAccess,
        command: str,
        source: bytes | Path,
        *,
        limit: timedelta,
        what: str,
        hurried: bool = False,
    ) -> str:
        """Runs a command on the machine and returns its output, without its errors.

        Args:
            source: the input of the command, or the file with it.
            limit: how long it may take, besides the connection.
            what: names the command in errors.

        Raises:
            MachineFault: the machine is not reached, or the command fails or takes longer.
        """
        done = await self._run(host, command, source, limit=limit, hurried=hurried)
        if done.late:
            raise MachineFault(f"{host}: {what} did not end within {limit.total_seconds():g} s")
        if done.status != 0:
            raise _failed(host, what, done, done.errors or done.output)
        return done.output

    async def script(
        self, host: HostAccess, script: str, *, limit: timedelta, what: str, hurried: bool = False
    ) -> dict[str, str]:
        """Runs a script on the machine and returns the values that it prints, by their names.

        Raises:
            MachineFault: as in `run`, or the script printed no answer.
        """
        done = await self._run(
            host, SHELL, f"{FIRST_LINE}{script}".encode(), limit=limit, hurried=hurried
        )
        lines = done.output.splitlines()
        if RUNS not in lines:
            raise _no_shell(host, done, limit)
        if done.late:
            raise MachineFault(f"{host}: {what} did not end within {limit.total_seconds():g} s")
        answer = lines[lines.index(RUNS) + 1 :]
        if done.status != 0 or BEGIN not in answer or END not in answer:
            raise _failed(host, what, done, done.errors or "\n".join(answer), answer)
        return dict(
            line.partition("=")[::2] for line in answer[answer.index(BEGIN) + 1 : answer.index(END)]
        )

    def reconfigure(self, settings: ManualSettings) -> None:
        """Uses another configuration from now on. Closes connections to machines that it does not
        list, or lists otherwise.
        """
        listed = set(settings.all_hosts)
        self._forgotten = (self._forgotten | set(self.settings.all_hosts)) - listed
        self.settings = settings
        for host in self._forgotten:
            self._logins.forget(host)
            if (connection := self._open.pop(host, None)) is not None:
                connection.close()

    async def close(self) -> None:
        """Closes all kept connections, and ends the logins in progress."""
        await self._logins.close()
        connections, self._open = list(self._open.values()), {}
        for each in connections:
            each.close()
        for each in connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(each.wait_closed(), 2)

    async def _run(
        self,
        host: HostAccess,
        command: str,
        source: bytes | Path,
        *,
        limit: timedelta,
        hurried: bool,
    ) -> _Done:
        """Runs a command on the machine. If it is late, only its channel is closed: a kept
        connection may have a tunnel.
        """
        async with self.to(host, hurried=hurried) as connection:
            process: asyncssh.SSHClientProcess[bytes] | None = None
            try:
                async with asyncio.timeout(limit.total_seconds()):
                    if isinstance(source, Path):
                        process = await connection.create_process(
                            command, stdin=str(source), encoding=None
                        )
                    else:
                        process = await connection.create_process(command, encoding=None)
                        # It has ended already: its status and output say why.
                        with contextlib.suppress(BrokenPipeError):
                            process.stdin.write(source)
                            process.stdin.write_eof()
                    output, errors = await process.communicate()
            except TimeoutError:
                if process is None:
                    connection.abort()
                    return _Done(None, "", "", late=True)
                output, errors = process.collect_output()
                return _Done(None, _text(output), _text(errors), late=True)
            finally:
                if process is not None:
                    process.close()
            if process.exit_status is None and connection.is_closed():
                raise asyncssh.ConnectionLost("the machine does not answer any more")
            return _Done(process.returncode, _text(output), _text(errors))

    async def _log_in(self, host: HostAccess) -> asyncssh.SSHClientConnection:
        try:
            return await self._logins.connection(host)
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            raise MachineFault(
                f"{host}: the login was broken off, because the control plane is stopping or its"
                " configuration has changed"
            ) from None

    async def _connect(self, host: HostAccess) -> asyncssh.SSHClientConnection:
        limit = self.settings.connect_timeout.total_seconds()
        step = jump_of(host) if host.jump_host else host
        through: asyncssh.SSHClientConnection | None = None
        with contextlib.ExitStack() as failed:
            try:
                async with asyncio.timeout(limit):
                    if host.jump_host:
                        through = await self._open_one(step, None)
                        failed.callback(through.abort)
                    step = host
                    connection = await self._open_one(host, through)
            except (MachineFault, TimeoutError) as error:
                which = "" if step is host else f"its jump host {step}: "
                reason = (
                    str(error).removeprefix(f"{step}: ")
                    if isinstance(error, MachineFault)
                    else (
                        f"port {step.port} did not answer SSH within {limit:g} s"
                        " (ssh.connect_timeout)"
                    )
                )
                kind = type(error) if isinstance(error, MachineFault) else MachineFault
                raise kind(f"{host}: {which}{reason}") from None
            failed.pop_all()
        # asyncssh closes the agent with the connection; otherwise only an agent that it has opened.
        connection.set_tunnel(through)
        return connection

    async def _open_one(
        self, host: HostAccess, through: asyncssh.SSHClientConnection | None
    ) -> asyncssh.SSHClientConnection:
        known: Path | str = (
            self.settings.known_hosts_secret or self.settings.known_hosts.expanduser()
        )
        key: Path | str | None = host.key_secret or (
            host.key_file.expanduser() if host.key_file is not None else None
        )
        trusted = await self._trusted(host, known)
        keys = await self._keys(host, key)
        try:
            return await asyncssh.connect(
                host.address,
                host.port,
                username=host.user,
                tunnel=through,
                known_hosts=trusted,
                password_auth=False,
                kbdint_auth=False,
                compression_algs=["none"],  # the packages are compressed already
                keepalive_interval=KEEPALIVE.total_seconds(),
                connect_timeout=None,
                login_timeout=0,  # the caller has a limit
                **keys,
            )
        except asyncssh.HostKeyNotVerifiable as error:
            raise UnusableMachine(_untrusted(host, known, trusted, str(error))) from None
        except asyncssh.PermissionDenied:
            raise UnusableMachine(
                f"{host}: refuses user {host.user} with {_remedied(key)} (Iris never uses"
                " passwords)"
            ) from None
        except asyncssh.ChannelOpenError as error:
            raise MachineFault(
                f"{host}: port {host.port} is not reached through its jump host {host.jump_host}:"
                f" {error.reason}; the host has to be up, and the jump host needs"
                " AllowTcpForwarding yes in sshd_config"
            ) from None
        except (OSError, asyncssh.Error) as error:
            if isinstance(error, TimeoutError):
                raise
            raise MachineFault(
                f"{host}: port {host.port} is not reached: {_reason(error)}"
            ) from None

    async def _keys(self, host: HostAccess, key: Path | str | None) -> dict[str, Any]:
        """Returns the arguments of asyncssh with the keys for the login.

        Raises:
            UnusableMachine: the key cannot be used.
        """
        if key is None:
            return {}
        try:
            if isinstance(key, str):
                return {"client_keys": [asyncssh.import_private_key(await self._secret(host, key))]}
            await asyncio.to_thread(asyncssh.read_private_key, key)
            # The path, and not the content: a certificate may lie beside the key.
            return {"client_keys": [str(key)]}
        except asyncssh.KeyImportError as error:
            if "passphrase" not in str(error).lower():
                raise UnusableMachine(
                    f"{host}: the key {key} cannot be used: {error}; name the file of a private key"
                ) from None
        except asyncssh.KeyEncryptionError as error:
            raise UnusableMachine(
                f"{host}: the key {key} cannot be used: {error}; name another key"
            ) from None
        except FileNotFoundError:
            raise UnusableMachine(
                f"{host}: the key {key} does not exist; create it with ssh-keygen, or name"
                " another key"
            ) from None
        except OSError as error:
            raise UnusableMachine(
                f"{host}: the key {key} cannot be read: {error.strerror}"
            ) from None
        if isinstance(key, str):
            raise UnusableMachine(
                f"{host}: the key {key} has a passphrase; add a version of the secret without one"
            )
        agent = os.environ.get("SSH_AUTH_SOCK", "")
        public = Path(f"{key}.pub")
        if agent and public.exists():
            return {"agent_path": agent, "agent_identities": [str(public)]}
        raise UnusableMachine(
            f"{host}: the key {key} has a passphrase, which Iris never asks for; add the key to an"
            f" SSH agent with: ssh-add {key} (Iris needs SSH_AUTH_SOCK and {public}), or name"
            " another key"
        )

    async def _trusted(self, host: HostAccess, known: Path | str) -> asyncssh.SSHKnownHosts:
        """Returns the host keys that Iris trusts.

        Raises:
            UnusableMachine: the list cannot be used.
        """
        try:
            if isinstance(known, str):
                return asyncssh.import_known_hosts((await self._secret(host, known)).decode())
            return (
                asyncssh.read_known_hosts(str(known))
                if known.exists()
                else asyncssh.import_known_hosts("")
            )
        except ValueError as error:
            raise UnusableMachine(
                f"{host}: the known hosts in {known} cannot be used: {error}"
            ) from None
        except OSError as error:
            raise UnusableMachine(
                f"{host}: the known hosts in {known} cannot be read: {error.strerror}"
            ) from None

    async def _secret(self, host: HostAccess, resource: str) -> bytes:
        """Returns the value of a secret.

        Raises:
            MachineFault: it cannot be read.
        """
        assert self._secrets is not None, resource
        try:
            return await self._secrets.content(resource)
        except BadConfig as error:
            raise UnusableMachine(f"{host}: {resource} cannot be read: {error}") from None
        except PlatformError as error:
            raise MachineFault(f"{host}: {resource} cannot be read: {error}") from None


def _reason(error: Exception) -> str:
    """Returns the system's text for an error, which asyncio replaces by one without the cause."""
    if isinstance(error, socket.gaierror):
        return str(error.strerror)
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number is not None and number > 0 else str(error)


def _text(data: bytes | str | None) -> str:
    return data.decode(errors="replace") if isinstance(data, bytes) else data or ""


def _end_of(text: str) -> str:
    return text.strip()[-SHOWN:] or "no output"


def _failed(
    host: HostAccess, what: str, done: _Done, output: str, answer: Sequence[str] = ()
) -> MachineFault:
    """Returns why a command failed: what its script reported, or else the end of its output."""
    full = "its disk is full: " if any(text in done.errors for text in FULL) else ""
    refused = [line.removeprefix(FAILED) for line in answer if line.startswith(FAILED)]
    reason = "\n".join(refused) or f"exit status {done.status}: {_end_of(output)}"
    return (UnusableMachine if full or refused else MachineFault)(
        f"{host}: {what} failed: {full}{reason}"
    )


def _no_shell(host: HostAccess, done: _Done, limit: timedelta) -> MachineFault:
    """Returns the reason and the remedy if the login shell did not start the script."""
    remedy = (
        "look at the start files of the login shell there, such as ~/.bashrc, until this ends at"
        f" once: {login(host)} true"
    )
    if done.late:
        return MachineFault(
            f"{host}: its login shell did not run a command within {limit.total_seconds():g} s;"
            f" {remedy}"
        )
    said = f"exit status {done.status}: {_end_of(done.output or done.errors).splitlines()[-1]}"
    return UnusableMachine(f"{host}: its login shell runs no commands ({said}); {remedy}")


def login(host: HostAccess) -> str:
    """Returns the command line with which a person logs in to the machine."""
    if not host.jump_host:
        return f"ssh -p {host.port} {host.user}@{host.address}"
    jump = jump_of(host)
    return (
        f"ssh -J {jump.user}@{jump.address}:{jump.port} -p {host.port} {host.user}@{host.address}"
    )


def _remedied(key: Path | str | None) -> str:
    """Returns which key the machine did not accept, and what to do."""
    if key is None:
        return (
            "the keys of the SSH agent and of ~/.ssh; add a public key to the user's"
            " ~/.ssh/authorized_keys there"
        )
    if isinstance(key, Path) and (certificate := Path(f"{key}-cert.pub")).exists():
        return (
            f"the key {key} and its certificate; check its principals and validity with: ssh-keygen"
            f" -L -f {certificate}"
        )
    return f"the key {key}; add the public key to the user's ~/.ssh/authorized_keys there"


def _untrusted(
    host: HostAccess, known: Path | str, trusted: asyncssh.SSHKnownHosts, error: str
) -> str:
    """Returns why the key of a machine is refused, and what to do.

    Args:
        error: what asyncssh says of it.
    """
    name = host.address if host.port == 22 else f"[{host.address}]:{host.port}"
    keys, authorities, *_ = matches = asyncssh.match_known_hosts(
        trusted, host.address, "", host.port
    )
    if authorities and not keys:
        remedy = (
            f"signed by the authority in {known}; check it with ssh-keygen -L, and the clocks here"
            " and there"
        )
        return (
            f"{host}: its host certificate is refused: {error}; it has to be valid now, for this"
            f" address, and {remedy}"
        )
    there = any(matches)
    if isinstance(known, str):
        changed = "is not the one in" if there else "is not in"
        return (
            f"{host}: its host key {changed} {known}; compare it with the output of: ssh-keyscan -p"
            f" {host.port} {host.address}, and add a version of the secret that has it"
        )
    if there:
        return (
            f"{host}: its host key is not the one in {known}: the machine was installed again, or"
            " another one answers; if that is right, remove the old key with: ssh-keygen -f"
            f" {known} -R '{name}', and accept the new one with: {login(host)}"
        )
    return f"{host}: its host key is not in {known}; compare and accept it with: {login(host)}"


class SecretFiles:
    """Reads the files for SSH that a configuration names by references to a secret manager. Each
    value is read once for all machines, and again when it is older than `SECRET_VALID`.

    A cluster with a cloud needs such references, because its control plane runs on a machine of
    that cloud, which has no files of its users.

    Args:
        access: returns the value of `projects/P/secrets/S/versions/V`. It blocks. It raises
            `BadConfig` or `Unavailable`, in the cases that `content` lists.
    """

    def __init__(self, access: Callable[[str], bytes]) -> None:
        self._access = access
        self._locks: dict[str, asyncio.Lock] = {}
        self._values: dict[str, tuple[float, bytes]] = {}

    async def content(self, resource: str) -> bytes:
        """Returns the value.

        Raises:
            BadConfig: it does not exist, or this process may not read it.
            Unavailable: the secret manager does not answer.
        """
        async with self._locks.setdefault(resource, asyncio.Lock()):
            read_at, value = self._values.get(resource, (0.0, b""))
            if value and time.monotonic() - read_at < SECRET_VALID.total_seconds():
                return value
            value = await asyncio.to_thread(self._access, resource)
            self._values[resource] = (time.monotonic(), value)
            return value


async def forward(
    access: HostAccess, ports: Mapping[int, int], *, known_hosts: Path, connect_timeout: timedelta
) -> str:
    """Forwards ports until the connection breaks.

    Args:
        ports: the loopback port on the machine for each loopback port of this machine.

    Returns:
        Why it broke, or why there was none.
    """
    settings = ManualSettings(
        cluster="",
        uid="",
        hosts={},
        zones={},
        connect_timeout=connect_timeout,
        known_hosts=known_hosts,
    )
    try:
        async with Connections(settings).to(access) as connection:
            for here, there in ports.items():
                await connection.forward_local_port("127.0.0.1", here, "127.0.0.1", there)
            await connection.wait_closed()
    except MachineFault as error:
        return str(error)
    except (OSError, asyncssh.Error) as error:
        return f"{access}: {error}"
    return f"{access}: the SSH connection broke"
