"""A Temporal service as in production, for tests: the official server in one or more processes, on
PostgreSQL.

`scripts/temporal-cluster build` builds the server; the same script starts and stops a service from
a shell. A service has a directory of its own with its tables, settings and logs. It has Temporal's
default settings, not those that Iris chooses for its dev server
(`worker_agents/local/temporal_server.py`): four partitions for each task queue, and limits on
requests.
"""

import argparse
import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import yaml
from google.protobuf.duration_pb2 import Duration
from pydantic import BaseModel
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from iris.client.connect.clusters import ProcessRef
from iris.client.connect.connection import connect
from iris.model.errors import IrisError, Unreachable
from iris.processes.process import free_ports
from iris.retrying import poll, retry

ROOT = Path(__file__).parents[1]
#: The last part serves Temporal's own workers, on a service with an access policy.
PARTS = ("frontend", "history", "matching", "worker", "internal-frontend")
DATABASES = ("temporal", "temporal_visibility")
#: A server that shares two cores with other tests starts in some ten seconds.
PATIENCE = timedelta(seconds=90)
RETENTION = timedelta(days=3)


class Service(BaseModel):
    """What a service's directory says of it."""

    shards: int
    #: Dynamic configuration, by key or, for one namespace, by `key@namespace`.
    settings: dict[str, Any]
    postgres_port: int
    #: The port of the first server's HTTP API, which a service with an access policy has.
    http_port: int
    namespaces: tuple[str, ...]
    #: The access policy of the servers (`server/`); None for a service without access control.
    policy: Path | None = None
    #: For each server two rows: the ports of its `PARTS` for gRPC, and those for membership.
    ports: tuple[tuple[int, ...], ...]
    #: The processes that were started last, by name.
    processes: dict[str, ProcessRef] = {}

    @property
    def addresses(self) -> list[str]:
        """The `host:port` of each server's frontend."""
        return [f"127.0.0.1:{grpc[0]}" for grpc in self.ports[::2]]


class TemporalCluster:
    """The service of a directory, which need not exist yet.

    Args:
        directory: absolute. If root starts the service, other users must be able to enter the
            parents: PostgreSQL refuses root.
    """

    def __init__(self, directory: Path) -> None:
        self._dir = directory
        self._record = directory / "service.json"

    @property
    def service(self) -> Service:
        """What there is of the service.

        Raises:
            IrisError: none was started in this directory.
        """
        try:
            return Service.model_validate_json(self._record.read_bytes())
        except FileNotFoundError:
            raise IrisError(f"no Temporal service was started in {self._dir}") from None

    def start(
        self,
        servers: int = 1,
        shards: int = 4,
        settings: Mapping[str, Any] | None = None,
        namespaces: Sequence[str] = ("default",),
        policy: Path | None = None,
        token: str | None = None,
    ) -> Service:
        """Starts PostgreSQL and the servers, and waits until they serve the namespaces. A service
        that was stopped keeps its tables, ports and settings.

        Args:
            policy: the access policy; None: everybody may do everything.
            token: that of a control plane, which may create the namespaces under a policy.

        Raises:
            IrisError: a part did not start; the message has the end of its log. Nothing runs then.
        """
        self._dir.mkdir(parents=True, exist_ok=True)
        self._dir.chmod(0o711)
        if not self._record.exists():
            postgres_port, http_port, *ports = some_ports(2 + 2 * len(PARTS) * servers)
            self._write(
                Service(
                    shards=shards,
                    settings=dict(settings or {}),
                    namespaces=tuple(namespaces),
                    policy=policy,
                    postgres_port=postgres_port,
                    http_port=http_port,
                    ports=tuple(
                        tuple(ports[number :: 2 * servers]) for number in range(2 * servers)
                    ),
                )
            )
        try:
            self.start_postgres()
            self._create_tables()
            # One after the other: the first one writes what belongs to all, and a second one that
            # would write it, too, ends.
            for number in range(len(self.service.addresses)):
                self.start_server(number)
                asyncio.run(self.becomes_ready(number, token))
        except BaseException:
            self.stop()
            raise
        return self.service

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """Stops the servers by a signal, then PostgreSQL. Does nothing if none runs."""
        for name in reversed(self.service.processes):
            self.end(name, number)

    def start_server(self, number: int) -> None:
        """Starts one server, and does not wait for it."""
        service = self.service
        config = self._dir / f"server-{number}.yaml"
        settings = self._dir / "dynamic.yaml"
        settings.write_text(yaml.safe_dump(dynamic_config(service.settings)))
        config.write_text(yaml.safe_dump(server_config(service, number, settings)))
        command: list[str | Path] = [
            built() / "temporal-server",
            "--allow-no-auth",
            "--config-file",
            config,
            "start",
        ]
        policy = {} if service.policy is None else {"IRIS_ACCESS_POLICY": str(service.policy)}
        self._start(f"server-{number}", command, env={**os.environ, **policy})

    def end(self, name: str, number: signal.Signals) -> None:
        """Ends one process by a signal, and waits for its end: `server-0`, `postgres`."""
        ref = self.service.processes.get(name)
        if ref is None or not ref.alive():
            return
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(ref.pid)
            children = process.children(recursive=True)
            process.send_signal(number)
            _, alive = psutil.wait_procs([process, *children], 30)
            for left in alive:
                left.kill()
            psutil.wait_procs(alive, 10)

    def running(self) -> list[str]:
        """The names of the processes that run."""
        return [name for name, ref in self.service.processes.items() if ref.alive()]

    # -- PostgreSQL
    # ----------------------------------------------------------------------------------------------

    def start_postgres(self) -> None:
        """Starts PostgreSQL, and waits until it accepts connections."""
        data = self._dir / "postgres"
        port = self.service.postgres_port
        if not data.exists():
            closed = [
                parent
                for parent in data.parents
                if os.geteuid() == 0 and not parent.stat().st_mode & 0o001
            ]
            if closed:
                raise IrisError(
                    f"PostgreSQL's user cannot enter {closed[-1]}; choose another directory"
                )
            self._run("initdb", initdb(data, "temporal"), **as_postgres())
        options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": "300",
        }
        command: list[str | Path] = [postgres_bin() / "postgres", "-D", data, "-p", str(port)]
        self._start(
            "postgres",
            [*command, *(f"--{key}={value}" for key, value in options.items())],
            **as_postgres(),
        )
        isready: list[str | Path] = [
            postgres_bin() / "pg_isready",
            "-q",
            "-h",
            "127.0.0.1",
            "-p",
            str(port),
        ]
        self._wait("postgres", lambda: subprocess.run(isready, check=False).returncode == 0)

    def _create_tables(self) -> None:
        env = {
            "PATH": f"{built()}{os.pathsep}{os.environ['PATH']}",
            "TEMPORAL_SCHEMA": str(built() / "schema"),
            "SQL_PLUGIN": "postgres12",
            "SQL_HOST": "127.0.0.1",
            "SQL_PORT": str(self.service.postgres_port),
            "SQL_USER": "temporal",
        }
        self._run("schema", [ROOT / "docker" / "temporal-schema"], env=env)

    def dump(self) -> Path:
        """Writes the databases into a directory, as they are now, and returns it."""
        dumps = self._dir / "dumps"
        dumps.mkdir()
        for name in DATABASES:
            self._client("pg_dump", "--format=custom", f"--file={dumps / name}", name)
        return dumps

    def restore(self, dumps: Path) -> None:
        """Replaces the databases by those of `dump`. No server may run."""
        for name in DATABASES:
            self._client("dropdb", "--force", name)
            self._client("createdb", name)
            self._client("pg_restore", f"--dbname={name}", str(dumps / name))

    def _client(self, program: str, *arguments: str) -> None:
        """Runs a program of PostgreSQL's as the superuser."""
        where = ("--host=127.0.0.1", f"--port={self.service.postgres_port}", "--username=temporal")
        self._run(program, [postgres_bin() / program, *where, *arguments])

    # -- processes
    # ----------------------------------------------------------------------------------------------

    def _start(self, name: str, command: Sequence[str | Path], **options: Any) -> None:
        with self._log(name).open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
                **options,
            )
        ref = ProcessRef.of(process.pid)
        service = self.service
        self._write(service.model_copy(update={"processes": {**service.processes, name: ref}}))

    def _run(self, name: str, command: Sequence[str | Path], **options: Any) -> None:
        with self._log(name).open("ab") as log:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                check=False,
                **options,
            )
        if done.returncode:
            raise self._failed(name)

    def _wait(self, name: str, ready: Callable[[], bool]) -> None:
        if (
            not poll(lambda: ready() or name not in self.running(), every=0.1, timeout=PATIENCE)
            or name not in self.running()
        ):
            raise self._failed(name)

    async def becomes_ready(self, number: int, token: str | None = None) -> None:
        """Waits until a server serves the namespaces, which the first one creates."""
        name, service = f"server-{number}", self.service

        def starts(error: Exception) -> bool:
            # A client of Temporal's raises RuntimeError if it cannot connect.
            known = isinstance(error, Unreachable | RPCError | RuntimeError)
            return known and name in self.running()

        retention = Duration()
        retention.FromTimedelta(RETENTION)

        @retry(starts, every=1, timeout=PATIENCE)
        async def serves(namespace: str) -> None:
            address = service.addresses[number]
            client = (
                await connect(address, namespace, timeout=timedelta(seconds=5), quiet=True)
                if token is None
                else await Client.connect(address, namespace=namespace, api_key=token, tls=False)
            )
            try:
                await client.workflow_service.register_namespace(
                    RegisterNamespaceRequest(
                        namespace=client.namespace, workflow_execution_retention_period=retention
                    )
                )
            except RPCError as error:
                if error.status is not RPCStatusCode.ALREADY_EXISTS:
                    raise
            await client.count_workflows()

        for namespace in service.namespaces:
            try:
                await serves(namespace)
            except (Unreachable, RPCError, RuntimeError) as error:
                raise self._failed(name) from error

    def _failed(self, name: str) -> IrisError:
        log = self._log(name)
        end = "\n".join(line[:500] for line in log.read_text(errors="replace").splitlines()[-10:])
        return IrisError(f"{name} did not start; the end of {log}:\n{end}")

    def _log(self, name: str) -> Path:
        return self._dir / f"{name}.log"

    def _write(self, service: Service) -> None:
        self._record.write_text(service.model_dump_json(indent=2))


def server_config(service: Service, number: int, settings: Path) -> dict[str, Any]:
    """Returns the configuration of one server.

    Args:
        settings: the file with the dynamic configuration.
    """

    def database(name: str, connections: int) -> dict[str, Any]:
        return {
            "sql": {
                "pluginName": "postgres12",
                "databaseName": name,
                "connectAddr": f"127.0.0.1:{service.postgres_port}",
                "connectProtocol": "tcp",
                "user": "temporal",
                "password": "",
                "maxConns": connections,
                "maxIdleConns": connections,
                "maxConnLifetime": "1h",
            }
        }

    frontend = service.addresses[number]
    ports = zip(PARTS, *service.ports[2 * number : 2 * number + 2], strict=True)
    services: dict[str, Any] = {
        part: {"rpc": {"grpcPort": grpc, "membershipPort": membership, "bindOnIP": "127.0.0.1"}}
        for part, grpc, membership in ports
    }
    if service.policy is None:
        del services[PARTS[-1]]
    elif number == 0:
        services[PARTS[0]]["rpc"]["httpPort"] = service.http_port
    return {
        "log": {"stdout": True, "level": "warn"},
        "persistence": {
            "defaultStore": "default",
            "visibilityStore": "visibility",
            "numHistoryShards": service.shards,
            "datastores": {
                "default": database("temporal", 20),
                "visibility": database("temporal_visibility", 10),
            },
        },
        "global": {"membership": {"maxJoinDuration": "30s", "broadcastAddress": "127.0.0.1"}},
        "services": services,
        "clusterMetadata": {
            "enableGlobalNamespace": False,
            "failoverVersionIncrement": 10,
            "masterClusterName": "active",
            "currentClusterName": "active",
            "clusterInformation": {
                "active": {
                    "enabled": True,
                    "initialFailoverVersion": 1,
                    "rpcName": "frontend",
                    "rpcAddress": frontend,
                }
            },
        },
        "dcRedirectionPolicy": {"policy": "noop"},
        "dynamicConfigClient": {"filepath": str(settings), "pollInterval": "10s"},
    }


def some_ports(count: int) -> list[int]:
    """Returns so many different free ports of this machine."""
    found: set[int] = set()
    while len(found) < count:
        found.update(free_ports())
    return sorted(found)[:count]


def dynamic_config(settings: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Returns the file of dynamic configuration with these settings, given by `key` or
    `key@namespace`.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for name, value in settings.items():
        key, _, namespace = name.partition("@")
        limits = {"constraints": {"namespace": namespace}} if namespace else {}
        found.setdefault(key, []).append({"value": value, **limits})
    return found


def built() -> Path:
    """Returns the directory of the built server.

    Raises:
        IrisError: it cannot be built here; the message says what is missing.
    """
    done = subprocess.run(
        [ROOT / "scripts" / "temporal-cluster", "build"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise IrisError(done.stderr.strip())
    return Path(done.stdout.strip())


def postgres_bin() -> Path:
    """Returns the directory of PostgreSQL's programs: those of Debian's latest version, or those on
    PATH.
    """
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda each: float(each.parent.name)
    )
    return found[-1] if found else Path(shutil.which("postgres") or "postgres").resolve().parent


def initdb(data: Path, superuser: str) -> list[str | Path]:
    """Makes the data directory of PostgreSQL, and returns the command that fills it. Nobody needs a
    password: everything is reachable from this machine only, as is Temporal, which asks for none.
    """
    data.mkdir(mode=0o700)
    if os.geteuid() == 0:
        shutil.chown(data, "postgres", "postgres")
    options = ["-U", superuser, "--auth=trust", "-E", "UTF8", "--locale=C", "--no-sync"]
    return [postgres_bin() / "initdb", "-D", data, *options]


def as_postgres() -> dict[str, Any]:
    """Returns the options that start a process as PostgreSQL's user, if this is root, for whom
    PostgreSQL does not run.
    """
    return (
        {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    )


@contextmanager
def a_temporal_cluster(**options: Any) -> Iterator[TemporalCluster]:
    """A service that runs; afterwards nothing is left of it."""
    directory = Path(tempfile.mkdtemp(prefix="iris-temporal-"))
    cluster = TemporalCluster(directory)
    try:
        cluster.start(**options)
        yield cluster
    finally:
        with suppress(IrisError):
            cluster.stop(signal.SIGKILL)
        shutil.rmtree(directory)


def main() -> None:
    """Implements `scripts/temporal-cluster start | status | stop`."""
    parser = argparse.ArgumentParser(prog="scripts/temporal-cluster")
    commands = parser.add_subparsers(dest="command", required=True)
    for command in ("start", "status", "stop"):
        commands.add_parser(command).add_argument("directory", type=Path)
    start = commands.choices["start"]
    start.add_argument("--servers", type=int, default=1)
    start.add_argument("--shards", type=int, default=4)
    start.add_argument("--namespace", action="append", default=["default"])
    start.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    cluster = TemporalCluster(options.directory.absolute())
    try:
        if options.command == "start":
            settings = {
                key: yaml.safe_load(value)
                for key, _, value in (each.partition("=") for each in options.set)
            }
            cluster.start(options.servers, options.shards, settings, options.namespace)
        elif options.command == "stop":
            cluster.stop()
        running = cluster.running()
        lines = [
            *(cluster.service.addresses if running else ()),
            f"running: {', '.join(running) or 'nothing'}",
        ]
        sys.stdout.write("\n".join(lines) + "\n")
        code = 0
    except IrisError as error:
        sys.stderr.write(f"error: {error}\n")
        code = error.exit_code
    sys.stdout.flush()
    os._exit(code)  # as the command line does: Temporal's client may crash in Python's own exit


if __name__ == "__main__":
    main()
