"""Implements `iris debug bundle`."""

import asyncio
import os
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from iris.cli.cluster.checks import CHECKS, WORKERS
from iris.cli.cluster.commands import cluster_state, cluster_state_json
from iris.cli.cluster.debug_options import debug_options
from iris.cli.command import Command
from iris.cli.job_names import named_job
from iris.cli.name_completion import Kind, names_of
from iris.cli.run import locate, selected
from iris.cli.show.autoscaler import autoscaler_json, group_listing
from iris.cli.show.explanation import explanation_json
from iris.cli.show.hosts import HOSTS
from iris.cli.show.jobs import JOBS, status_json
from iris.cli.show.messages import print_json, show_progress
from iris.cli.show.slices import slice_listing
from iris.client.client import AsyncIrisClient
from iris.client.connect.cluster_ref import ClusterRef
from iris.client.jobs.rows import JobRow
from iris.client.operate.bundle.archive import (
    Collection,
    check_output,
    default_name,
    write_archive,
)
from iris.client.operate.bundle.logs import (
    add_agent_logs,
    add_control_plane_log,
    add_local_logs,
)
from iris.client.operate.bundle.machine import (
    cluster_facts,
    config_json,
    config_of,
    config_secrets,
    machine_facts,
    versions_here,
)
from iris.client.operate.bundle.redaction import (
    Redactor,
    secrets_in,
    secrets_of_environment,
    words_in,
)
from iris.client.operate.bundle.service import history_of, server_facts, workflow_facts
from iris.client.operate.debugging import Diagnostics
from iris.client.operate.local.versions import versions_of
from iris.concurrency import for_each
from iris.messages.scheduler import HostView, Totals
from iris.model import names
from iris.model.job.spec import JobSpec
from iris.model.units import format_bytes

#: How long `iris debug bundle` waits for the connection to the cluster. A tunnel may have to open
#: first.
CONNECT_TIMEOUT = timedelta(seconds=45)
#: How long each answer of the cluster may take. All requests are sent at the same time.
ANSWER_TIMEOUT = timedelta(seconds=30)
#: How long the collection of all logs of one kind, such as the agents' logs, may take. SSH may have
#: to connect first.
LOGS_TIMEOUT = timedelta(seconds=90)
#: The number of recent jobs in a debug bundle.
JOBS_LIMIT = 50
#: The number of jobs whose submissions are read at the same time.
_AT_ONCE = 8
#: The fields of a job that a debug bundle contains. The command, the tags and the note are left
#: out, because they are texts of the user.
_JOB_KEYS = (
    *("id", "run", "state", "cancelling", "user", "submitted_at", "priority", "tasks", "device"),
    *("parent", "reason"),
)
#: The end of a message about jobs whose submissions could not be read. It says which of their
#: secrets are hidden in the debug bundle.
_UNREAD = "their values are not known, so only those with the form of a secret are hidden"
_HIDDEN = """\
What looks like a secret, and the variables and commands of recent jobs that could be read, were
replaced by [hidden-N]. The names of users, jobs, hosts and addresses are in it.
Look through it before you send it: tar -xzf {file}"""


@click.command(cls=Command)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The archive to write.  [default: iris-debug-CLUSTER-TIME.tar.gz here]",
)
@click.option(
    "--job",
    metavar="JOB",
    shell_complete=names_of(Kind.JOBS),
    help="Add the status, the explanation and the history of this job.",
)
@click.option(
    "--tail",
    type=click.IntRange(0, 10_000),
    default=1000,
    show_default=True,
    metavar="N",
    help="Keep the last N lines of each log.",
)
@debug_options
@click.pass_context
def bundle(
    ctx: click.Context, output: Path | None, job: str | None, tail: int, as_json: bool
) -> None:
    """Write an archive for the report of a fault: versions, configuration, state, logs; no secrets.

    Also works while the control plane or the Temporal service does not answer: missing.txt in the
    archive lists what is missing. Look through the archive before you send it.
    """
    cluster, now = selected(ctx).known(), datetime.now(UTC)
    name = default_name(cluster.name, now)
    output = output or Path(f"{name}.tar.gz")
    check_output(output)
    show_progress(f"asking cluster {cluster.name} …")
    report = _Report(cluster, job, tail)
    asyncio.run(report.collect())
    files = report.collection.written(report.redactor())
    write_archive(output, name, files, now)
    _show(output, files, report.collection.missing, as_json=as_json)


def _show(
    output: Path, files: Mapping[str, bytes], missing: Mapping[str, str], *, as_json: bool
) -> None:
    size = output.stat().st_size
    if as_json:
        held = {name: len(data) for name, data in files.items()}
        print_json({"file": str(output), "bytes": size, "files": held, "missing": missing})
        return
    click.echo(f"wrote {output} ({format_bytes(size)}) with:")
    for name, data in files.items():
        click.echo(f"  {format_bytes(len(data)):>8}  {name}")
    for name, reason in missing.items():
        click.echo(f"   MISSING  {name}: {reason}")
    click.echo(_HIDDEN.format(file=shlex.quote(str(output))))


class _Report:
    """Collects the content of a debug bundle.

    Args:
        job: the job as the user named it; None if the user named no job.
        tail: the number of lines of each log.
    """

    def __init__(self, cluster: ClusterRef, job: str | None, tail: int) -> None:
        self.collection = Collection()
        self._cluster = cluster
        self._job = job
        self._tail = tail
        self._secrets = secrets_of_environment(os.environ)
        self._words: list[str] = []
        self._public = {cluster.name}
        #: The hosts whose logs are collected first: those of the job's tasks, then those that take
        #: no new tasks.
        self._hosts: list[str] = []

    def redactor(self) -> Redactor:
        """Returns what hides the secrets that were found meanwhile."""
        return Redactor(self._secrets, self._words, self._public)

    async def collect(self) -> None:
        """Asks this machine, then the cluster. What does not answer is noted as missing."""
        cluster, here = self._cluster, asyncio.to_thread
        await self._collect("versions.json", lambda: here(versions_here))
        await self._collect("machine.json", lambda: here(machine_facts))
        await self._collect("cluster.json", lambda: here(cluster_facts, cluster))
        await self._collect("config.json", self._config)
        if (record := cluster.record) is not None:
            await self._collect(
                "logs", lambda: here(add_local_logs, self.collection, record.name, self._tail)
            )
        if cluster.platform == "local":
            await self._ask_cluster()
        else:
            await asyncio.gather(self._ask_cluster(), self._read_control_plane_log())
        if "jobs.json" not in self.collection.files:
            self.collection.lacks("submissions", _UNREAD)

    async def _collect(
        self,
        name: str,
        read: Callable[[], Awaitable[Any]],
        within: timedelta = ANSWER_TIMEOUT,
    ) -> bool:
        return await self.collection.collect(name, read, within=within)

    async def _config(self) -> dict[str, Any]:
        config = await asyncio.to_thread(config_of, self._cluster)
        self._secrets += config_secrets(config)
        self._public |= {config.name, *config.scale_groups}
        return config_json(config)

    async def _read_control_plane_log(self) -> None:
        await self._collect(
            "logs/controller.log",
            lambda: add_control_plane_log(self.collection, self._cluster, self._tail),
            LOGS_TIMEOUT,
        )

    async def _ask_cluster(self) -> None:
        """Asks the service and the control plane everything at the same time, then reads the logs
        of agents in the store.
        """
        clients: list[AsyncIrisClient] = []

        async def connect() -> None:
            await locate(self._cluster)
            clients.append(await AsyncIrisClient.connect(self._cluster))

        await self._collect("service", connect, CONNECT_TIMEOUT)
        record = clients[0].record if clients else self._cluster.record
        if clients:
            await self._ask(clients[0])
        if record is not None:
            await self._collect(
                "logs/agents",
                lambda: add_agent_logs(
                    self.collection, record.store, record.name, self._hosts, self._tail
                ),
                LOGS_TIMEOUT,
            )

    async def _ask(self, client: AsyncIrisClient) -> None:
        """Asks a cluster whose service answers. Sends no two queries to a workflow at a time: the
        service keeps few of a workflow that is busy.
        """
        parts, collection = _Parts(client), self.collection
        self._public.add(client.record.name)
        job, scheduler, autoscaler, _, _ = await asyncio.gather(
            self._job_id(client),
            collection.collect_in_turn(parts.of_scheduler(), within=ANSWER_TIMEOUT),
            collection.collect_in_turn(parts.of_autoscaler(), within=ANSWER_TIMEOUT),
            self._collect("jobs.json", lambda: self._jobs(client)),
            asyncio.gather(*(self._collect(*part) for part in parts.of_service().items())),
        )
        self._public |= parts.public
        self._hosts += parts.closed
        if scheduler and autoscaler:
            after = {"slices.json": parts.slices, "status.json": parts.status}
            await collection.collect_in_turn(after, within=ANSWER_TIMEOUT)
        else:
            await self._collect("slices.json", parts.listed_slices)
            collection.lacks("status.json", "not asked, because the control plane does not answer")
        await self._collect("health.json", parts.health)
        if job is not None:
            await self._add_job(client, job)

    async def _jobs(self, client: AsyncIrisClient) -> list[dict[str, Any]]:
        """Returns the recent jobs, and learns their secrets."""
        rows = await client.jobs.list(limit=JOBS_LIMIT)
        unread = []
        for row in rows:
            self._public |= {row.id, row.user, *row.id.split("/")}

        async def learn(row: JobRow) -> None:
            try:
                self._learn(await client.jobs.submitted_spec(row.id, row.run_id or None))
            except Exception:  # whatever it is, it must not cost the other jobs
                unread.append(row.id)

        await for_each(rows, learn, at_once=_AT_ONCE)
        if unread:
            self.collection.lacks("submissions", f"of {', '.join(unread)}: {_UNREAD}")
        shown = (JOBS.json(row) for row in rows)
        return [{key: row[key] for key in _JOB_KEYS} for row in shown]

    def _learn(self, spec: JobSpec) -> None:
        self._secrets += secrets_in(spec)
        self._words += words_in(spec)

    async def _job_id(self, client: AsyncIrisClient) -> str | None:
        """Returns the id of the job that the user named, and learns its secrets."""
        if (given := self._job) is None:
            return None
        found = []

        async def find() -> None:
            job = await named_job(client, given)
            self._learn(await client.jobs.submitted_spec(job))
            self._public.update([job, *job.split("/")])
            found.append(job)

        await self._collect("job", find)
        return found[0] if found else None

    async def _add_job(self, client: AsyncIrisClient, job: str) -> None:
        connection, workflow = client.connection, names.job_workflow(client.record.name, job)

        async def status() -> dict[str, Any]:
            status = await client.jobs.status(job)
            self._hosts[:0] = [task.host for task in status.tasks if task.host]
            return status_json(status)

        async def explanation() -> dict[str, Any]:
            return explanation_json(await client.jobs.explain(job))

        asked = {"job/status.json": status, "job/explain.json": explanation}
        await asyncio.gather(
            self.collection.collect_in_turn(asked, within=ANSWER_TIMEOUT),
            self._collect("job/workflow.json", lambda: workflow_facts(connection, workflow)),
            self._collect("job/history.json", lambda: history_of(connection, workflow)),
        )


class _Parts:
    """Reads the parts of a debug bundle from a running cluster, in the form in which the commands
    of `iris` print them as JSON.
    """

    def __init__(self, client: AsyncIrisClient) -> None:
        self._client = client
        self._views: Sequence[HostView] = ()
        #: The names of hosts, slices and scale groups. A debug bundle lists them, so they are not
        #: hidden in its texts as secrets are.
        self.public: set[str] = set()
        #: The hosts that take no new tasks.
        self.closed: list[str] = []

    def of_scheduler(self) -> dict[str, Callable[[], Awaitable[Any]]]:
        """Returns what reads each part that the scheduler answers, by the name of its file."""
        return {
            "scheduler.json": self._totals,
            "hosts.json": self._hosts,
            "workers.json": self._workers,
        }

    def of_autoscaler(self) -> dict[str, Callable[[], Awaitable[Any]]]:
        """Returns what reads each part that the autoscaler answers, by the name of its file."""
        return {"autoscaler.json": self._autoscaler}

    def of_service(self) -> dict[str, Callable[[], Awaitable[Any]]]:
        """Returns what reads each part that only the service answers, by the name of its file."""
        connection = self._client.connection
        return {
            "cluster-versions.json": self._versions,
            "server.json": lambda: server_facts(connection),
            "workflows/scheduler.json": lambda: workflow_facts(connection, connection.scheduler),
            "workflows/autoscaler.json": lambda: workflow_facts(connection, connection.autoscaler),
        }

    async def status(self) -> dict[str, Any]:
        """Returns the output of `iris cluster status`."""
        return cluster_state_json(await cluster_state(self._client))

    async def slices(self) -> list[dict[str, Any]]:
        """Returns the output of `iris slice list`."""
        listing = slice_listing(self._views)
        return [listing.json(row) for row in await self._client.slices.list()]

    async def listed_slices(self) -> list[dict[str, Any]]:
        """Returns the slices that the service lists, without zones, reasons and tasks."""
        return [slice_listing(()).json(row) for row in await self._client.slices.listed()]

    async def health(self) -> list[dict[str, Any]]:
        """Returns the checks of `iris debug health`."""
        return [CHECKS.json(each) for each in await Diagnostics(self._client).health()]

    async def _versions(self) -> dict[str, Any]:
        return (await versions_of(self._client)).model_dump(mode="json")

    async def _hosts(self) -> list[dict[str, Any]]:
        views = self._views = await self._client.hosts.list()
        self.public |= {name for view in views for name in (view.host.id, view.host.slice_id)}
        self.closed += [view.host.id for view in views if view.closed]
        return [HOSTS.json(view) for view in views]

    async def _autoscaler(self) -> dict[str, Any]:
        status = await self._client.autoscaler.status()
        listing, groups = group_listing(status), status.settings.groups if status.settings else ()
        self.public |= {group.name for group in groups}
        return {
            **autoscaler_json(status),
            "scale_groups": [listing.json(group) for group in groups],
        }

    async def _workers(self) -> list[dict[str, Any]]:
        return [WORKERS.json(each) for each in await Diagnostics(self._client).workers()]

    async def _totals(self) -> dict[str, Any]:
        connection = self._client.connection
        totals = await connection.query(connection.scheduler, "totals", Totals)
        return totals.model_dump(mode="json")
