"""The control plane: one process with three workers and no state. Two of them may run, and either
may die.

The workers must not share slots. A job's workflow task holds a slot while it waits for the
scheduler's answer. With a shared pool, a burst of jobs would starve the very workflow for which
they wait. And while the scheduler is away, the exchanges of jobs would take the slots of the
activities that observe the fleet and delete machines.
"""

import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetStickyTaskQueueRequest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from iris.activities.control.child_jobs import ChildJobs
from iris.activities.control.job_dependencies import JobDependencies
from iris.activities.control.job_tasks import JobTasks
from iris.activities.control.notifier import Notifier
from iris.activities.control.observe import FleetObserver
from iris.activities.control.outbox import Outbox
from iris.activities.control.recovery import RecoveryQueries
from iris.activities.control.sealed_secrets import SealedSecrets
from iris.activities.control.slices import Slices
from iris.activities.control.usage_records import UsageRecords
from iris.activities.control.webhooks import WebhookCalls
from iris.client.access.message_key import check_mark
from iris.client.access.proof_checks import proof_checks
from iris.client.access.proofs import key_of
from iris.client.access.selection import slice_delegation
from iris.client.connect.clusters import ClusterRecord
from iris.client.connect.connection import connect, make_runtime
from iris.client.connect.deployment import deployment
from iris.client.connect.encryption import payload_keys
from iris.client.connect.identity import cluster_uid
from iris.client.connect.plugin import IrisPlugin
from iris.client.fleet.configure import configure_planners, scaling_settings
from iris.client.operate.platforms import secret_reader
from iris.concurrency import beside, pause
from iris.config import ClusterConfig, dashboard_of, rules_of
from iris.dashboard.installed import is_installed
from iris.messages.autoscaler import AutoscalerStart
from iris.messages.scheduler import SchedulerStart
from iris.metrics.kinds import Part
from iris.metrics.serve import Listen, keep_gauges, serving_metrics
from iris.model import names
from iris.model.errors import Rejected
from iris.model.frozen import Frozen
from iris.model.job.requests import Request
from iris.model.job.spec import Hold
from iris.platforms.base import Platform
from iris.platforms.manual.settings import manual_settings
from iris.processes.process import rest_memory, stop_event
from iris.scheduling.ledger.codec import LedgerState
from iris.storage.object_store import Store
from iris.tracing import spans
from iris.worker_agents.control_plane import planner_gauges
from iris.worker_agents.control_plane.budgets import Budgets, publishing_accounting
from iris.worker_agents.control_plane.config_watcher import (
    ConfigFile,
    CurrentPlatform,
    MachinesBeside,
    SshHosts,
    platform_of,
)
from iris.worker_agents.control_plane.dashboard import serving
from iris.worker_agents.control_plane.job_tracing import JobTracing
from iris.worker_agents.control_plane.lost_tasks import end_lost_tasks
from iris.worker_agents.control_plane.search_attributes import register_search_attributes
from iris.worker_agents.control_plane.store_upkeep import (
    keeping_secrets,
    marking_store,
    merging_uses,
)
from iris.workflows import policies
from iris.workflows.autoscaler.autoscaler import AutoscalerWorkflow
from iris.workflows.jobs.array_part import ArrayPartWorkflow
from iris.workflows.jobs.job import JobWorkflow
from iris.workflows.jobs.notification import NotificationWorkflow
from iris.workflows.jobs.scheduled_job import ScheduledJobWorkflow
from iris.workflows.jobs.task import TaskWorkflow
from iris.workflows.scheduler.scheduler import SchedulerWorkflow
from iris.workflows.search_attributes import keywords
from iris.workflows.slices.slice import SliceWorkflow

logger = logging.getLogger(__name__)

#: If the worker that has cached a workflow dies, another worker gets the workflow's next task after
#: this time.
STICKY_TIMEOUT = timedelta(seconds=5)
#: The version of the scheduler's ledger and of its decisions. `docs/upgrading.md` says when to
#: raise it.
LEDGER_VERSION = 1
#: The version of the autoscaler's state and of its decisions. `docs/upgrading.md` says when to
#: raise it.
AUTOSCALER_VERSION = 1
#: The interval between two checks that the workflows of the scheduler and the autoscaler run. A
#: user may have terminated one.
PLANNER_CHECK_INTERVAL = timedelta(seconds=15)
#: The maximum number of workflows that stay in memory. A replay costs milliseconds, and a cached
#: job costs some tens of kilobytes.
CACHED_WORKFLOWS = 5_000
#: The maximum number of activities that may wait for other workflows at the same time. A waiting
#: activity costs a few kilobytes.
PATIENT_ACTIVITIES = 2_000


class ControlPlaneOptions(Frozen):
    """The options of a control plane."""

    address: str
    namespace: str
    cluster: str
    store: str
    #: The address of the Temporal service's Web UI, which clients show; empty if there is none.
    ui: str = ""
    #: The configuration file; None if all machines of the cluster are brought by users.
    config: Path | None = None
    #: The directory with a folder for each simulated slice of a local cluster, or, with hosts over
    #: SSH, with the archive of packages that is copied to them; None for other clusters.
    machines: Path | None = None
    #: `host:port` at which hosts reach the Temporal service; empty if it is the same as `address`.
    advertise: str = ""
    #: The port at which the control plane serves its metrics; None: the configuration decides.
    metrics_port: int | None = None
    #: The address at which the control plane serves its metrics; None: the configuration decides.
    metrics_address: str | None = None
    #: The port of the dashboard; 0 if the control plane serves none; None: the configuration
    #: decides.
    dashboard_port: int | None = None


async def serve(options: ControlPlaneOptions) -> None:
    """Runs a control plane until SIGTERM or SIGINT.

    Raises:
        Unreachable: the Temporal service does not answer, or the store does not, which holds the
            uid that marks this cluster's machines.
        Rejected: a later version of the control plane has started the planners.
    """
    file = ConfigFile(options.config) if options.config is not None else None
    with serving_metrics(Part.CONTROL_PLANE, _listen(options, file)) as sdk_metrics:
        await _serve(options, file, sdk_metrics)


def _listen(options: ControlPlaneOptions, file: ConfigFile | None) -> Listen:
    """Returns where the control plane serves its metrics."""
    configured = Listen()
    if file is not None:
        configured = Listen(file.config.metrics.controller_port, file.config.metrics.address)
    return configured.with_options(options.metrics_port, options.metrics_address)


async def _serve(options: ControlPlaneOptions, file: ConfigFile | None, sdk_metrics: str) -> None:
    """Does what `serve` does, beside the page with the metrics.

    Args:
        sdk_metrics: where Temporal's SDK serves its metrics; empty if none are served.
    """
    stop = stop_event()
    rest_memory()
    spans.start("iris-control-plane")
    client = await connect(
        options.address,
        options.namespace,
        plugins=[IrisPlugin(payload_keys(), tolerant=True)],
        runtime=make_runtime(metrics=sdk_metrics),
    )
    await register_search_attributes(client)
    hosts = contextlib.AsyncExitStack()
    platform = await _platform(options, file, hosts) if file is not None else None
    # A worker of an earlier version would fail the planners' workflow tasks, so it must not even
    # poll for them.
    await check_versions(client, options.cluster)
    # A local cluster has a directory with its machines, which are processes here.
    budgets = Budgets(client, options.cluster, options.store)
    control, patient, planner = make_workers(
        client,
        options.cluster,
        platform,
        local=options.machines is not None,
        store=options.store,
        hold_of=budgets.hold_of,
    )
    # Done before the workers start: their messages to the planners would also wait for the dead
    # worker.
    await _take_over(client, options.cluster)
    # They end in the opposite order: a job's workflow task that is under way still gets the answer
    # of the scheduler, for which this process would otherwise wait in vain.
    async with hosts, planner, patient, control, _store_upkeep(client, options):
        planners = Planners(client, options, platform)
        config = file.config if file is not None else None
        dashboard = dashboard_of(config, port=options.dashboard_port)
        await planners.check()
        logger.info("control plane of cluster %s serves", options.cluster)
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(serving(client, _record(options), dashboard))
            if platform is not None:
                await stack.enter_async_context(
                    publishing_accounting(options.cluster, options.store, platform.renew)
                )
                await stack.enter_async_context(budgets.watching(platform.renew))
            if sdk_metrics:
                gather = functools.partial(planner_gauges.gather, client, options.cluster)
                gathering = keep_gauges(gather, planner_gauges.INTERVAL)
                await stack.enter_async_context(beside(gathering))
            while not stop.is_set():
                await pause(stop, PLANNER_CHECK_INTERVAL)
                try:
                    await planners.check()
                except RPCError as error:
                    logger.warning("cannot check the scheduler and autoscaler workflows: %s", error)


@contextlib.asynccontextmanager
async def _store_upkeep(client: Client, options: ControlPlaneOptions) -> AsyncIterator[None]:
    """Keeps the cluster's part of the store in order for as long as the block lasts."""
    cluster, store = options.cluster, options.store
    async with (
        marking_store(client, cluster, store),
        keeping_secrets(client, cluster, store),
        merging_uses(cluster, store),
    ):
        yield


def _record(options: ControlPlaneOptions) -> ClusterRecord:
    """Returns the record of the cluster for a client in this process."""
    return ClusterRecord(
        name=options.cluster,
        address=options.address,
        namespace=options.namespace,
        store=options.store,
        ui=options.ui,
    )


async def _platform(
    options: ControlPlaneOptions, file: ConfigFile, hosts: contextlib.AsyncExitStack
) -> CurrentPlatform:
    """Returns the platform of the current configuration.

    Args:
        hosts: is closed when the control plane ends. Until then, hosts over SSH are kept.
    """
    marked = file.config.platform.local is None
    uid = await cluster_uid(Store(options.store), options.cluster) if marked else ""
    address = options.advertise or options.address
    make = functools.partial(
        platform_of,
        uid=uid,
        address=address,
        namespace=options.namespace,
        machines=options.machines,
        delegate=functools.partial(slice_delegation, options.address),
    )
    if file.config.platform.manual is not None and options.machines is not None:
        machines = SshHosts(manual_settings(file.config, uid), options.machines)
        await hosts.enter_async_context(machines.serving())
        make = functools.partial(make, ssh_platform=machines.platform)
    elif file.config.platform.gcp is not None:
        over_ssh = MachinesBeside(secret_reader(file.config))
        await hosts.enter_async_context(over_ssh.serving())
        make = functools.partial(make, ssh_platform=over_ssh.platform)
    return CurrentPlatform(file, make)


def make_workers(
    client: Client,
    cluster: str,
    platform: Platform | None = None,
    *,
    local: bool = False,
    store: str = "",
    hold_of: Callable[[Request], Hold | None] = lambda _: None,
) -> tuple[Worker, Worker, Worker]:
    """Returns the workers of a cluster: for jobs and slices, for activities that wait for
    workflows, and for the planners.

    Args:
        local: whether the cluster's hosts are processes on this machine.
        store: the address of the cluster's store; empty: it has none.
        hold_of: returns the hold of a new job that must not have hosts yet; None if it may.
    """
    notifier = Notifier(client)
    outbox = Outbox(client, cluster, notifier, hold_of)
    return (
        _control_worker(client, cluster, platform, outbox, notifier),
        _patient_worker(client, cluster, outbox, local=local, store=store),
        _planner_worker(client, cluster),
    )


def _control_worker(
    client: Client, cluster: str, platform: Platform | None, outbox: Outbox, notifier: Notifier
) -> Worker:
    fleet, recovery = FleetObserver(client, platform), RecoveryQueries(client)
    on_machines: list[Callable[..., Any]] = []
    if platform is not None:
        slices = Slices(platform)
        on_machines = [
            slices.create_slice,
            slices.describe_slice,
            slices.console_output,
            slices.delete_slice,
        ]
    return Worker(
        client,
        task_queue=names.control_queue(cluster),
        deployment_config=deployment(),
        workflows=[
            JobWorkflow,
            TaskWorkflow,
            ArrayPartWorkflow,
            SliceWorkflow,
            ScheduledJobWorkflow,
            NotificationWorkflow,
        ],
        activities=[
            outbox.exchange,
            notifier.signal_placed,
            notifier.signal_evicted,
            notifier.signal_reasons,
            notifier.check_jobs,
            fleet.observe_fleet,
            fleet.query_wanted,
            recovery.query_page,
            recovery.list_slices,
            *on_machines,
        ],
        interceptors=[
            *proof_checks(client),
            *([JobTracing()] if spans.wanted() else []),
        ],
        max_cached_workflows=CACHED_WORKFLOWS,
        sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
    )


def _patient_worker(
    client: Client, cluster: str, outbox: Outbox, *, local: bool, store: str
) -> Worker:
    tasks, children, dependencies = JobTasks(client), ChildJobs(client), JobDependencies(client)
    return Worker(
        client,
        task_queue=names.patient_queue(cluster),
        deployment_config=deployment(),
        activities=[
            outbox.exchange,
            tasks.override_tasks,
            tasks.await_earlier_tasks,
            tasks.await_earlier_part,
            children.register_child,
            children.cancel_children,
            children.cancel_orphans,
            dependencies.find_ends,
            dependencies.signal_dependents,
            SealedSecrets(client, store).delete_secrets,
            UsageRecords(store).store_uses,
            WebhookCalls(local=local).call_webhook,
        ],
        interceptors=proof_checks(client),
        max_concurrent_activities=PATIENT_ACTIVITIES,
    )


def _planner_worker(client: Client, cluster: str) -> Worker:
    worker = Worker(
        client,
        task_queue=names.planner_queue(cluster),
        deployment_config=deployment(),
        workflows=[SchedulerWorkflow, AutoscalerWorkflow],
        interceptors=proof_checks(client),
        sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
    )
    allow_long_steps(worker, policies.PLANNER_TASK)
    return worker


def allow_long_steps(worker: Worker, limit: timedelta) -> None:
    """Sets the time that a workflow may compute without a pause, before the SDK takes it for
    deadlocked and fails its task. The SDK's limit is two seconds, and it has no option for another
    one. On a slow machine, reading the ledger of a large cluster takes longer, each time again.
    """
    workflows = worker._workflow_worker
    assert workflows is not None
    workflows._deadlock_timeout_seconds = int(limit.total_seconds())


class Planners:
    """Starts the workflows of the cluster's scheduler and autoscaler if they do not run, and sends
    them each new configuration.

    Args:
        platform: the platform with the current configuration; None if the cluster has no
            configuration.
    """

    def __init__(
        self, client: Client, options: ControlPlaneOptions, platform: CurrentPlatform | None
    ) -> None:
        self._client = client
        self._options = options
        self._platform = platform
        self._sent_config: ClusterConfig | None = None

    async def check(self) -> None:
        """Starts the planners that do not run, and sends both a configuration that is new.

        Raises:
            RPCError: the Temporal service does not answer. The next call sends the configuration
                again.
            Rejected: a later version of the control plane has started the planners.
        """
        config = self._platform.renew() if self._platform is not None else None
        await start_planners(self._client, self._options, config)
        if config is not None and config is not self._sent_config:
            await configure_planners(self._client, self._options.cluster, config)
            self._sent_config = config


async def start_planners(
    client: Client, options: ControlPlaneOptions, config: ClusterConfig | None = None
) -> None:
    """Starts the cluster's two long-lived workflows, unless they run already.

    Terminates those of an earlier version, because their states and decisions may differ and this
    version could not replay their histories. The workflows that replace them recover the state from
    the workflows of slices and gangs.

    Raises:
        Rejected: one of them is of a later version; nothing was changed.
    """
    cluster, key = options.cluster, key_of(client)
    scheduler_exists, autoscaler_exists = await check_versions(client, cluster)
    settings = scaling_settings(config) if config is not None else None
    ledger = (
        LedgerState(rules=rules_of(config), groups=list(settings.groups))
        if config is not None and settings
        else LedgerState()
    )
    await client.start_workflow(
        SchedulerWorkflow.run,
        SchedulerStart(cluster=cluster, ledger=ledger, recover=True),
        id=names.scheduler_workflow(cluster),
        task_queue=names.planner_queue(cluster),
        task_timeout=policies.PLANNER_TASK,
        id_conflict_policy=scheduler_exists,
        memo={
            names.MEMO_STORE: options.store,
            names.MEMO_UI: options.ui,
            names.MEMO_DASHBOARD: (
                dashboard_of(config, port=options.dashboard_port).url if is_installed() else ""
            ),
            names.MEMO_VERSION: LEDGER_VERSION,
            names.MEMO_MARK: key.mark(cluster, options.store) if key is not None else "",
        },
        search_attributes=keywords(
            {names.SA_CLUSTER: cluster, names.SA_KIND: names.KIND_SCHEDULER}
        ),
        static_summary=f"scheduler of cluster {cluster}: places waiting jobs on hosts",
    )
    await client.start_workflow(
        AutoscalerWorkflow.run,
        AutoscalerStart(cluster=cluster, settings=settings, query_slices=True),
        id=names.autoscaler_workflow(cluster),
        task_queue=names.planner_queue(cluster),
        task_timeout=policies.PLANNER_TASK,
        id_conflict_policy=autoscaler_exists,
        memo={names.MEMO_VERSION: AUTOSCALER_VERSION},
        search_attributes=keywords(
            {names.SA_CLUSTER: cluster, names.SA_KIND: names.KIND_AUTOSCALER}
        ),
        static_summary=f"autoscaler of cluster {cluster}: creates and deletes slices",
    )


async def check_versions(client: Client, cluster: str) -> list[WorkflowIDConflictPolicy]:
    """Returns how to start the scheduler and the autoscaler if they run: replace an earlier
    version, use the same one.

    Raises:
        Rejected: one of them is of a later version. It is not replaced: the control plane that
            started it would replace it again. Or this process does not have the message key of the
            cluster: it would fail all jobs.
    """
    policies = []
    versions = {
        names.scheduler_workflow(cluster): LEDGER_VERSION,
        names.autoscaler_workflow(cluster): AUTOSCALER_VERSION,
    }
    for workflow_id, version in versions.items():
        memo = await _memo_if_it_runs(client, workflow_id)
        if memo is not None and workflow_id == names.scheduler_workflow(cluster):
            mark = str(memo.get(names.MEMO_MARK, ""))
            check_mark(key_of(client), cluster, str(memo.get(names.MEMO_STORE, "")), mark)
        running = None if memo is None else int(memo.get(names.MEMO_VERSION, 1))
        if running is not None and running > version:
            raise Rejected(
                f"workflow {workflow_id} has version {running}, and this control plane has version"
                f" {version}; upgrade this control plane, or stop the later ones and terminate the"
                " workflow"
            )
        older = running is not None and running < version
        policies.append(
            WorkflowIDConflictPolicy.TERMINATE_EXISTING
            if older
            else WorkflowIDConflictPolicy.USE_EXISTING
        )
    return policies


async def _memo_if_it_runs(client: Client, workflow_id: str) -> Mapping[str, Any] | None:
    """Returns the memo with which the planner's workflow was started; None if it does not run.

    Raises:
        Rejected: another program's workflow has this id.
    """
    try:
        described = await client.get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise
    if described.status is not WorkflowExecutionStatus.RUNNING:
        return None
    if described.workflow_type not in (names.SCHEDULER_TYPE, names.AUTOSCALER_TYPE):
        raise Rejected(
            f"workflow {workflow_id} is a {described.workflow_type}, which Iris did not start;"
            " terminate it, or give the cluster another name"
        )
    return await described.memo()


async def _take_over(client: Client, cluster: str) -> None:
    """Lets the planners continue here at once. Their next tasks would otherwise wait for the last
    worker, which may be dead, and a task that it had begun for its timeout.
    """
    planners = (names.scheduler_workflow(cluster), names.autoscaler_workflow(cluster))
    for workflow_id in planners:
        execution = WorkflowExecution(workflow_id=workflow_id)
        try:
            await client.workflow_service.reset_sticky_task_queue(
                ResetStickyTaskQueueRequest(namespace=client.namespace, execution=execution)
            )
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:  # a new cluster has none yet
                raise
    await end_lost_tasks(client, planners)
