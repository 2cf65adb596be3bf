"""The autoscaler: one workflow per cluster that watches the fleet.

It looks at regular times (`observe_fleet`), judges (`iris.liveness`), and tells the slices concerned. A quiet fleet of any size
costs the same few events. Deciding how many slices there should be joins it with the scale groups.
"""

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from iris import names
from iris.activities.fleet import Fleet
from iris.liveness import LOOK_AGAIN, LOOK_EVERY, Silent, judge
from iris.workflows import policies
from iris.workflows.messages import AutoscalerStart, Batch, ClusterRef, HostLost


@workflow.defn
class AutoscalerWorkflow:
    @workflow.init
    def __init__(self, start: AutoscalerStart) -> None:
        self._cluster = start.cluster
        self._suspects = list(start.suspects)

    @workflow.run
    async def run(self, start: AutoscalerStart) -> None:
        while not workflow.info().is_continue_as_new_suggested():
            report = await workflow.execute_activity_method(
                Fleet.observe_fleet,
                ClusterRef(cluster=self._cluster),
                task_queue=names.control_queue(self._cluster),
                start_to_close_timeout=policies.OBSERVE,
                retry_policy=policies.UNTIL_DONE,
            )
            self._suspects, lost = judge(self._suspects, report.silent)
            for host in lost:
                await self._tell_slice(host)
            self._describe()
            await workflow.sleep(LOOK_AGAIN if self._suspects else LOOK_EVERY)
        workflow.continue_as_new(AutoscalerStart(cluster=self._cluster, suspects=tuple(self._suspects)))

    async def _tell_slice(self, host: Silent) -> None:
        concerned = workflow.get_external_workflow_handle(names.slice_workflow(self._cluster, host.slice_id))
        news = HostLost(host_id=host.host_id, incarnation=host.incarnation, reason=host.reason)
        try:
            await concerned.signal("host_lost", news)
        except ApplicationError:
            # The slice's workflow is gone, terminated perhaps, and told nobody of its hosts.
            scheduler = workflow.get_external_workflow_handle(names.scheduler_workflow(self._cluster))
            await scheduler.signal("deliver", Batch(messages=(news,)))

    def _describe(self) -> None:
        suspects = "\n".join(f"- {host.reason}; looked at again" for host in self._suspects)
        workflow.set_current_details(f"Watches the hosts.\n\n{suspects or 'All of them report.'}")
