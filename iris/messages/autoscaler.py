"""Messages to and from the autoscaler."""

import hashlib
from collections.abc import Iterable
from datetime import datetime, timedelta

from pydantic import Field

from iris.autoscaling.liveness import Silent
from iris.autoscaling.missing_hosts import MissingHost
from iris.messages.wire import Repetition
from iris.model.frozen import Frozen
from iris.model.slice.provisioning import SliceObservation
from iris.model.slice.scale_groups import ScaleGroup
from iris.model.slice.scaling import (
    Action,
    GroupStatus,
    Memory,
    Outlook,
    StockedOut,
    UsedUp,
)
from iris.model.slice.status import SliceFacts


class ScalingSettings(Frozen):
    """The autoscaler's settings from the cluster's configuration."""

    groups: tuple[ScaleGroup, ...] = ()
    #: The prefix of a slice's id.
    prefix: str = "iris"
    #: The longest time from a change of the demand or of the slices until the autoscaler evaluates
    #: the groups.
    evaluation_interval: timedelta = timedelta(seconds=10)
    #: The interval between two observations of the machines and their agents.
    observe_interval: timedelta = timedelta(seconds=15)


class Unowned(Frozen):
    """Machines of this cluster that no slice's workflow manages, with the number of observations in
    a row that found no such workflow. After several, the autoscaler starts a workflow for them.
    """

    observation: SliceObservation
    looks: int = 1


class CloseDown(Frozen):
    """A request to delete all slices, and to create none until the next configuration."""

    reason: str
    #: The time until which the tasks that run on the slices may continue. The tasks that still run
    #: then are stopped, and the slices are deleted.
    deadline: datetime


class AutoscalerStart(Frozen):
    """The state that a run of the autoscaler passes to the next."""

    cluster: str
    suspects: tuple[Silent, ...] = ()
    #: The settings; None for a cluster without scale groups, in which the autoscaler observes the
    #: hosts and creates no slices.
    settings: ScalingSettings | None = None
    slices: tuple[SliceFacts, ...] = ()
    #: The slices whose workflow was terminated, with the number of observations in a row that did
    #: not find their machines. After several, the slice counts as deleted.
    strays: dict[str, int] = Field(default_factory=dict)
    memory: Memory = Memory()
    unowned: tuple[Unowned, ...] = ()
    missing: tuple[MissingHost, ...] = ()
    outlooks: tuple[Outlook, ...] = ()
    #: The reason why the autoscaler is paused; None if it is not paused. While it is paused, it
    #: creates and drains no slices.
    paused: str | None = None
    #: The request to delete all slices; None if there is none.
    closing: CloseDown | None = None
    #: Whether the autoscaler first queries all slices for their state, because the state of an
    #: earlier, terminated autoscaler may be lost.
    query_slices: bool = False


class FleetReport(Frozen):
    """The differences that an observation found between the fleet and the state that the autoscaler
    expects. It is empty if there are none, so that the size of the history does not grow with the
    size of the fleet.
    """

    silent: tuple[Silent, ...] = ()
    #: The number of silent hosts if they are so many that the cause is probably the service or the
    #: network; otherwise 0. These hosts do not count as lost, and `silent` does not list them.
    held: int = 0
    #: The time of the observation by the server's clock; None if the machines were not listed.
    at: datetime | None = None
    #: The number of this report. The next observation names it as the last report that the
    #: autoscaler received.
    number: int = 0
    #: The number of this observation: `Patience.before` plus the number of tries of the activity.
    #: It is 0 if the request has no `patience`; then the activity observes only once.
    observations: int = 0
    #: Machines whose state on the platform changed since the last report that the autoscaler
    #: received.
    changed: tuple[SliceObservation, ...] = ()
    #: Slices whose machines are not in the platform's list.
    absent: tuple[str, ...] = ()
    #: Machines of this cluster that no workflow owns.
    unowned: tuple[SliceObservation, ...] = ()
    #: The zones whose machines could not be listed, with the reason.
    unreachable: dict[str, str] = Field(default_factory=dict)
    #: The ids of all slices that have a workflow; None if the autoscaler did not ask for the ids,
    #: or if they are the expected ones.
    owned: tuple[str, ...] | None = None
    #: The hosts of READY slices that the scheduler's ledger does not have; None if slices and
    #: ledger were not compared.
    missing: tuple[MissingHost, ...] | None = None


class Patience(Repetition):
    """The options of an activity that repeats the observation of the fleet until it finds news. The
    autoscaler already knows the values of `owned`, `held` and `unreachable`: an observation that
    finds the same values is no news.
    """

    #: The number of observations that were made before this activity started.
    before: int
    #: The number of observations from one census (a list of all slices that have a workflow) to the
    #: next; 0 for no census.
    census_every: int
    #: A slice's workflow compares a READY slice with the scheduler's ledger once in this number of
    #: observations.
    ledger_every: int
    #: The hash (`digest_of`) of the ids of all slices that should have a workflow.
    owned: str
    #: The number of silent hosts in the last report (`FleetReport.held`).
    held: int
    #: The zones that could not be listed, and the reasons, in the last report
    #: (`FleetReport.unreachable`).
    unreachable: dict[str, str]

    def extras(self, number: int) -> dict[str, bool]:
        """Returns the options of the observation with this number."""
        return {
            "census": self.census_every > 0 and number % self.census_every == 0,
            "ledger": number % self.ledger_every == 0,
        }

    def is_news(self, report: FleetReport) -> bool:
        """Returns whether the autoscaler has to act on the report, or has to show it."""
        found = (
            report.silent,
            report.changed,
            report.absent,
            report.unowned,
            report.owned is not None,
            report.missing,
        )
        return any(found) or report.held != self.held or report.unreachable != self.unreachable


def digest_of(slices: Iterable[str]) -> str:
    """Returns a short text that identifies this set of slices, in any order."""
    return hashlib.sha256("\n".join(sorted(slices)).encode()).hexdigest()[:32]


class ObserveFleet(Frozen):
    """The options of one observation of the fleet."""

    cluster: str
    #: The number of the last report that the autoscaler received. The next report has only the
    #: changes since then.
    last_report: int = 0
    #: Whether to list the platform's machines too.
    machines: bool = False
    #: Whether to list all slices that have a workflow.
    census: bool = False
    #: Whether to compare the READY slices with the scheduler's ledger.
    ledger: bool = False
    #: If set, the activity repeats the observation, with these options, until there is news; if
    #: None, it observes once.
    patience: Patience | None = None


class SliceList(Frozen):
    """The facts about the slices that the autoscaler created, as the workflows of the slices report
    them.
    """

    slices: tuple[SliceFacts, ...] = ()


class PauseScaling(Frozen):
    """An operator's request to create and drain no slices."""

    reason: str = ""


class AutoscalerStatus(Frozen):
    """The state of the autoscaler and of the slices that it manages."""

    groups: tuple[GroupStatus, ...] = ()
    slices: tuple[SliceFacts, ...] = ()
    actions: tuple[Action, ...] = ()
    outlooks: tuple[Outlook, ...] = ()
    evaluated_at: datetime | None = None
    next_at: datetime | None = None
    paused: str | None = None
    closing: str | None = None
    #: The zones whose machines could not be listed in the last observation, with the reason.
    unreachable: dict[str, str] = Field(default_factory=dict)
    unowned: tuple[SliceObservation, ...] = ()
    #: The zones that had no capacity for a kind of machine, and the quotas that were used up, as
    #: the platform last reported them. Some of these shortages may be over.
    stocked_out: tuple[StockedOut, ...] = ()
    used_up: tuple[UsedUp, ...] = ()
    #: The number of silent hosts if they are so many that the cause is probably the service or the
    #: network; otherwise 0. These hosts do not count as lost.
    held_hosts: int = 0
    #: The hosts of READY slices that the scheduler's ledger does not have.
    missing: tuple[MissingHost, ...] = ()
    settings: ScalingSettings | None = None
