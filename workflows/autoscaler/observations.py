"""Requests observations of the fleet, once or until there is news, and stores their results.

An activity that waits for news observes in each of its attempts. An attempt without news fails, and
the service starts the next one. So a fleet without changes adds nothing to the autoscaler's history
(decision 87).
"""

import contextlib
from collections.abc import Callable, Iterable
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

from iris.activities.control.observe import FleetObserver
from iris.messages.autoscaler import FleetReport, ObserveFleet, Patience, digest_of
from iris.model import names
from iris.workflows import policies


class Observations:
    """Observes the fleet during one run of the autoscaler. Keeps the parts of the last report that
    the next observation is compared with.
    """

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        #: The number of the last fleet report, and the number of observations so far.
        self._last_report = self._count = 0
        #: The number of silent hosts that the last report did not list, because other hosts that
        #: were pinged as witnesses did not answer either.
        self.held = 0
        #: The zones whose machines could not be listed, with the reason.
        self.unreachable: dict[str, str] = {}

    async def observe(self, *, machines: bool) -> FleetReport:
        """Observes once.

        Args:
            machines: whether to observe the platform's machines too.
        """
        number = self._count + 1
        request = ObserveFleet(
            cluster=self._cluster,
            last_report=self._last_report,
            machines=machines,
            census=machines and number % policies.CENSUS_EVERY == 0,
            ledger=number % policies.LEDGER_CHECK_EVERY == 0,
        )
        return self._received(await self._start(request, policies.UNTIL_DONE))

    async def await_news(
        self,
        every: timedelta,
        *,
        machines: bool,
        slices: Iterable[str],
        is_outdated: Callable[[], bool],
    ) -> FleetReport | None:
        """Observes until there is news.

        Args:
            every: the pause between two observations.
            machines: whether to observe the platform's machines too.
            slices: the ids of the slices that should have a workflow.
            is_outdated: returns whether to stop, because observations of another kind are needed.
                The result is None then.
        """
        patience = Patience(
            every=every,
            longest=policies.LONGEST_WATCH,
            before=self._count,
            census_every=policies.CENSUS_EVERY if machines else 0,
            ledger_every=policies.LEDGER_CHECK_EVERY,
            owned=digest_of(slices),
            held=self.held,
            unreachable=self.unreachable,
        )
        request = ObserveFleet(
            cluster=self._cluster,
            last_report=self._last_report,
            machines=machines,
            patience=patience,
        )
        observing = self._start(request, policies.UNTIL_NEWS)
        await workflow.wait_condition(lambda: observing.done() or is_outdated())
        if observing.done():
            return self._received(observing.result())
        observing.cancel()
        with contextlib.suppress(ActivityError):
            await observing
        return None

    def _start(
        self, request: ObserveFleet, retries: RetryPolicy
    ) -> workflow.ActivityHandle[FleetReport]:
        return workflow.start_activity_method(
            FleetObserver.observe_fleet,
            request,
            task_queue=names.control_queue(self._cluster),
            start_to_close_timeout=policies.OBSERVE,
            retry_policy=retries,
        )

    def _received(self, report: FleetReport) -> FleetReport:
        self._count = max(self._count + 1, report.observations)
        self._last_report, self.held, self.unreachable = (
            report.number,
            report.held,
            report.unreachable,
        )
        return report
