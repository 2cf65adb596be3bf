"""The control plane: one process, two workers, no state. Run two of them and either may die.

The workers must not share slots: a job's workflow task holds one while it waits in its exchange for the scheduler, and with a
shared pool a burst of jobs would starve the very workflow they wait for.
"""

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import ResetStickyTaskQueueRequest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from iris import names
from iris.activities.fleet import Fleet
from iris.activities.notices import Couriers
from iris.activities.outbox import Outbox
from iris.activities.rollcall import RollCall
from iris.activities.slices import Slices
from iris.client.configuring import scaling_settings, tell_planners
from iris.client.connection import connect
from iris.client.identity import cluster_uid
from iris.compact import LedgerState
from iris.config import ClusterConfig, rules
from iris.platforms.base import Platform
from iris.store import Store
from iris.worker_agents.configured import ConfigFile, CurrentPlatform, platform_of
from iris.worker_agents.process import rest_memory, stop_event
from iris.workflows.attributes import keywords
from iris.workflows.autoscaler import AutoscalerWorkflow
from iris.workflows.fleet_messages import AutoscalerStart
from iris.workflows.job import JobWorkflow
from iris.workflows.messages import SchedulerStart
from iris.workflows.scheduler import SchedulerWorkflow
from iris.workflows.slice import SliceWorkflow
from iris.workflows.task import TaskWorkflow

logger = logging.getLogger(__name__)

#: How long a workflow's next task waits for the worker that has it in memory, when that worker has died.
STICKY_TIMEOUT = timedelta(seconds=5)
#: The version of the scheduler's book and of how it decides: 1 had no gangs.
BOOK = 2
#: Between looks at whether the planners run: somebody may have terminated one.
LOOK_EVERY = timedelta(seconds=15)
#: Waiting jobs are kept in memory: replaying one costs milliseconds, keeping it some tens of kilobytes.
CACHED_WORKFLOWS = 5_000


class ControlPlaneOptions(BaseModel):
    """What a control plane is told."""

    model_config = ConfigDict(frozen=True)

    address: str
    namespace: str
    cluster: str
    store: str
    #: Where the Web UI of this Temporal service is, for clients to name; empty when there is none.
    ui: str = ""
    #: The file that says what the cluster consists of; None: of machines that people bring.
    config: Path | None = None
    #: Where the machines of a local cluster are asked for.
    machines: Path | None = None
    #: `host:port` of the Temporal service as hosts reach it, where that is not `address`.
    advertise: str = ""


async def serve(options: ControlPlaneOptions) -> None:
    """Be a control plane until SIGTERM or SIGINT.

    Raises:
        Unreachable: the Temporal service does not answer, or the store does not, on whose word machines belong to this cluster.
    """
    stop = stop_event()
    rest_memory()
    client = await connect(options.address, options.namespace)
    await register_search_attributes(client)
    platform = await _platform(options, ConfigFile(options.config)) if options.config is not None else None
    control, planner = make_workers(client, options.cluster, platform)
    # Before there are workers: what they would send to the planners would wait for the dead worker, too.
    await _take_over(client, options.cluster)
    async with control, planner:
        planners = Planners(client, options, platform)
        await planners.look_after()
        logger.info("control plane of cluster %s serves", options.cluster)
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), LOOK_EVERY.total_seconds())
            try:
                await planners.look_after()
            except RPCError as error:
                logger.warning("could not see whether the planners run: %s", error)


async def _platform(options: ControlPlaneOptions, file: ConfigFile) -> CurrentPlatform:
    uid = await cluster_uid(Store(options.store), options.cluster) if file.config.platform.gcp is not None else ""
    address = options.advertise or options.address
    make = functools.partial(platform_of, uid=uid, address=address, namespace=options.namespace, machines=options.machines)
    return CurrentPlatform(file, make)


def make_workers(client: Client, cluster: str, platform: Platform | None = None) -> tuple[Worker, Worker]:
    """The control and the planner worker of a cluster."""
    outbox, couriers, fleet, roll = Outbox(client, cluster), Couriers(client), Fleet(client, platform), RollCall(client)
    on_machines: list[Callable[..., Any]] = []
    if platform is not None:
        slices = Slices(platform)
        on_machines = [slices.create_slice, slices.describe_slice, slices.last_words, slices.delete_slice]
    control = Worker(
        client,
        task_queue=names.control_queue(cluster),
        workflows=[JobWorkflow, TaskWorkflow, SliceWorkflow],
        activities=[
            outbox.exchange,
            couriers.tell_placed,
            couriers.tell_evicted,
            couriers.tell_reasons,
            couriers.check_jobs,
            fleet.observe_fleet,
            fleet.ask_wanted,
            roll.call_roll,
            roll.list_slices,
            *on_machines,
        ],
        max_cached_workflows=CACHED_WORKFLOWS,
        sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
    )
    planner = Worker(
        client,
        task_queue=names.planner_queue(cluster),
        workflows=[SchedulerWorkflow, AutoscalerWorkflow],
        sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
    )
    return control, planner


class Planners:
    """The cluster's planners, and what they have been told.

    Args:
        platform: knows the configuration; None: there is none.
    """

    def __init__(self, client: Client, options: ControlPlaneOptions, platform: CurrentPlatform | None) -> None:
        self._client = client
        self._options = options
        self._platform = platform
        self._told: ClusterConfig | None = None

    async def look_after(self) -> None:
        """Start those that do not run, and let both know the configuration if it is another one than they were told.

        Raises:
            RPCError: the Temporal service does not answer. Who does not know the configuration yet is told the next time.
        """
        config = self._platform.renew() if self._platform is not None else None
        await start_planners(self._client, self._options, config)
        if config is not None and config is not self._told:
            await tell_planners(self._client, self._options.cluster, config)
            self._told = config


async def start_planners(client: Client, options: ControlPlaneOptions, config: ClusterConfig | None = None) -> None:
    """The cluster's two long-lived workflows, unless they run already.

    A scheduler of another version, which keeps its book in another way and may have decided in another way, is ended: its history
    could not be replayed here. The one that takes its place calls the roll.
    """
    cluster = options.cluster
    other = await _keeps_another_book(client, cluster)
    settings = scaling_settings(config) if config is not None else None
    ledger = LedgerState(rules=rules(config), groups=list(settings.groups)) if config is not None and settings else LedgerState()
    await client.start_workflow(
        SchedulerWorkflow.run,
        SchedulerStart(cluster=cluster, ledger=ledger, call_roll=True),
        id=names.scheduler_workflow(cluster),
        task_queue=names.planner_queue(cluster),
        id_conflict_policy=WorkflowIDConflictPolicy.TERMINATE_EXISTING if other else WorkflowIDConflictPolicy.USE_EXISTING,
        memo={names.MEMO_STORE: options.store, names.MEMO_UI: options.ui, names.MEMO_BOOK: BOOK},
        search_attributes=keywords({names.SA_CLUSTER: cluster, names.SA_KIND: names.KIND_SCHEDULER}),
        static_summary=f"who offers what and who waits, in cluster {cluster}",
    )
    await client.start_workflow(
        AutoscalerWorkflow.run,
        AutoscalerStart(cluster=cluster, settings=settings, gather=True),
        id=names.autoscaler_workflow(cluster),
        task_queue=names.planner_queue(cluster),
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        search_attributes=keywords({names.SA_CLUSTER: cluster, names.SA_KIND: names.KIND_AUTOSCALER}),
        static_summary=f"how many slices cluster {cluster} has, and whether its hosts live",
    )


async def _keeps_another_book(client: Client, cluster: str) -> bool:
    try:
        described = await client.get_workflow_handle(names.scheduler_workflow(cluster)).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return described.status is WorkflowExecutionStatus.RUNNING and (await described.memo()).get(names.MEMO_BOOK) != BOOK


async def _take_over(client: Client, cluster: str) -> None:
    """Let the planners go on here at once: their next tasks would wait for the worker that had them last, which may be dead."""
    for workflow_id in (names.scheduler_workflow(cluster), names.autoscaler_workflow(cluster)):
        execution = WorkflowExecution(workflow_id=workflow_id)
        try:
            await client.workflow_service.reset_sticky_task_queue(
                ResetStickyTaskQueueRequest(namespace=client.namespace, execution=execution)
            )
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:  # a new cluster has none yet
                raise


async def register_search_attributes(client: Client) -> None:
    """Make Iris' search attributes known to the namespace, those that are not yet."""
    service = client.operator_service
    listed = await service.list_search_attributes(ListSearchAttributesRequest(namespace=client.namespace))
    missing = [name for name in names.SEARCH_ATTRIBUTES if name not in listed.custom_attributes]
    if not missing:
        return
    keyword = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
    try:
        await service.add_search_attributes(
            AddSearchAttributesRequest(namespace=client.namespace, search_attributes=dict.fromkeys(missing, keyword))
        )
    except RPCError as error:
        if error.status is not RPCStatusCode.ALREADY_EXISTS:  # another control plane was quicker
            raise
