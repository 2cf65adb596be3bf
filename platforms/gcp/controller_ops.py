"""The deeds on the control plane's machine: found, made, switched on, started anew, given other metadata, deleted.

Each is done when it returns, and may be said again. Compute's client is synchronous, and so is this: commands use it, which have
nothing else to do meanwhile. What fails for a while is tried again for as long as the patience lasts.
"""

import json
import random
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from google.auth.exceptions import GoogleAuthError
from google.cloud import compute_v1
from google.cloud.compute_v1.services.instances.pagers import AggregatedListPager
from pydantic import BaseModel, ConfigDict, Field

from iris.platforms.base import BadConfig, PlatformError, RateLimited, Unavailable
from iris.platforms.gcp import marks
from iris.platforms.gcp.clients import DEADLINE, connect
from iris.platforms.gcp.compute import instances_on, silent_on
from iris.platforms.gcp.errors import CALL_ERRORS, CallFailed, Trouble, later, trouble_of, trouble_of_operation, verdict
from iris.platforms.gcp.requests import zone_of
from iris.platforms.gcp.settings import GcpSettings

T = TypeVar("T")

#: With calls that are refused for a while, or not answered.
PATIENCE = timedelta(minutes=2)
#: A machine is made in a minute, and deleted in two.
OPERATION = timedelta(minutes=10)
#: Between two looks at an operation, in seconds, and at the most between two tries.
LOOK_EVERY = 1.0
MAX_PAUSE = 15.0

LOGIN = "gcloud auth application-default login"
RUNNING = "RUNNING"
#: Somebody has switched it off; its disk is there.
_OFF = {"TERMINATED", "STOPPED"}
_SUSPENDED = {"SUSPENDED"}


class SeenMachine(BaseModel):
    """A control plane's machine, as Google shows it."""

    model_config = ConfigDict(frozen=True)

    name: str
    zone: str
    #: In Google's words, such as RUNNING.
    status: str
    #: What it was made of, or was last told to be; see `marks.BUILD_KEY`.
    build: str = ""
    #: Inside its network.
    address: str = ""
    #: The configuration that it boots with; see `marks.CONFIG_KEY`.
    config: str = ""
    #: See `controller_vm.made_with`.
    made_with: dict[str, str] = Field(default_factory=dict)


class ControllerMachine:
    """The machine of one cluster's control plane.

    Args:
        zone: where it is made; it is found in others, too.
        tell: is told what a long deed waits for.

    Raises:
        Unavailable: there are no credentials.
    """

    def __init__(self, settings: GcpSettings, zone: str, tell: Callable[[str], None] = lambda _: None) -> None:
        self._settings = settings
        self._name = marks.controller_name(settings)
        self._zone = zone
        self._tell = tell
        try:
            clients = connect(settings)
        except GoogleAuthError as error:
            raise Unavailable(f"no credentials for Google Cloud: {error}; get some with: {LOGIN}") from None
        self._instances, self._operations = clients.instances, clients.operations

    def find(self) -> SeenMachine | None:
        """The machine, wherever it is; None: there is none.

        Raises:
            BadConfig: there is one of its name that is not this cluster's, or Google does not let us look.
            RateLimited, Unavailable: Google could not be asked, or not about every zone, of which one may have it.
        """
        there = self._get(self._zone)
        if there is None:
            marked, silent = self._of_label()
            if not marked and silent:
                zones = "; ".join(f"{zone} ({why})" for zone, why in sorted(silent.items()))
                raise Unavailable(
                    f"whether cluster {self._settings.cluster} has a control plane in these zones is not known: {zones}"
                )
            there = next(iter(marked), None)
        if there is None:
            return None
        seen = _seen(there)
        if not marks.is_ours(self._settings, there.labels):
            raise BadConfig(
                f"a machine {seen.name} exists in {seen.zone} already, and is not of this cluster; delete it, or choose another "
                f"name or platform.gcp.label_prefix"
            )
        return seen

    def create(self, request: compute_v1.InsertInstanceRequest) -> None:
        """Make the machine; one that somebody else has made meanwhile will do as well.

        Raises:
            PlatformError: Google refuses; nothing was made.
        """
        what = request.instance_resource.machine_type.rpartition("/")[2]
        try:
            operation = self._call(lambda: self._instances.insert_unary(request, retry=None, timeout=DEADLINE), self._zone)
        except CallFailed as error:
            if not error.trouble.is_taken:
                raise verdict(error.trouble, self._zone, what) from None
        else:
            self._wait(operation, self._zone, what, lambda trouble: trouble.is_taken)

    def switch_on(self, seen: SeenMachine) -> None:
        """Start a machine that somebody has stopped; one that runs is left alone."""
        named = self._named(seen.name, seen.zone)
        if seen.status in _OFF:
            self._do(lambda: self._instances.start_unary(retry=None, timeout=DEADLINE, **named), seen.zone)
        elif seen.status in _SUSPENDED:
            self._do(lambda: self._instances.resume_unary(retry=None, timeout=DEADLINE, **named), seen.zone)

    def reset(self, seen: SeenMachine) -> None:
        """Switch it off and on again. What is on its disk stays."""
        named = self._named(seen.name, seen.zone)
        self._do(lambda: self._instances.reset_unary(retry=None, timeout=DEADLINE, **named), seen.zone)

    def rebuild(self, seen: SeenMachine, request: compute_v1.InsertInstanceRequest) -> None:
        """Give it the metadata that a machine made by this request would have; what it boots with follows at its next start."""
        asked = request.instance_resource.metadata.items
        # What it was made with it has for good, whatever it boots with.
        wanted = {item.key: item.value for item in asked if item.key != marks.MADE_KEY}

        def change() -> compute_v1.Operation:
            named = self._named(seen.name, seen.zone)
            there = self._instances.get(retry=None, timeout=DEADLINE, **named)
            others = [item for item in there.metadata.items if item.key not in wanted]
            items = [*others, *(compute_v1.Items(key=key, value=value) for key, value in wanted.items())]
            # Refused when somebody was quicker, and then done anew.
            metadata = compute_v1.Metadata(items=items, fingerprint=there.metadata.fingerprint)
            return self._instances.set_metadata_unary(metadata_resource=metadata, retry=None, timeout=DEADLINE, **named)

        self._do(change, seen.zone, again=lambda trouble: bool(trouble.reasons & {"conditionNotMet"}))

    def delete(self) -> list[str]:
        """Delete it, and every other that this cluster ever had as one; their names. Returns when Google says that they are gone.
        What is in a zone that does not answer is left: whoever deletes the cluster's slices hears of the zone, too.

        Raises:
            PlatformError: one is still there.
        """
        there = {(each.name, zone_of(each.zone)): each for each in self._of_label()[0]}
        named = self._get(self._zone)
        if named is not None and marks.is_ours(self._settings, named.labels):
            there[(named.name, zone_of(named.zone))] = named
        for name, zone in there:
            self._tell(f"deleting machine {name} in {zone}")
            self._delete(name, zone)
        return sorted(name for name, _ in there)

    def console(self, seen: SeenMachine) -> str:
        """What it has said on its serial console; Google keeps the last megabyte.

        Raises:
            RateLimited, Unavailable: Google could not be asked.
        """
        named = self._named(seen.name, seen.zone)
        try:
            return self._call(
                lambda: self._instances.get_serial_port_output(retry=None, timeout=DEADLINE, **named).contents, seen.zone
            )
        except CallFailed as error:
            raise later(error.trouble, seen.zone) from None

    # -- inside --------------------------------------------------------------------------------------------------------------

    def _named(self, name: str, zone: str) -> dict[str, Any]:
        return {"project": self._settings.project, "zone": zone, "instance": name}

    def _get(self, zone: str) -> compute_v1.Instance | None:
        named = self._named(self._name, zone)
        try:
            return self._call(lambda: self._instances.get(retry=None, timeout=DEADLINE, **named), zone)
        except CallFailed as error:
            if error.trouble.is_absence:
                return None
            raise verdict(error.trouble, zone) from None

    def _of_label(self) -> tuple[list[compute_v1.Instance], dict[str, str]]:
        """All machines that are marked as this cluster's control plane, in any zone; and by zone why one did not answer."""
        labels = f"labels.{marks.UID}={self._settings.uid} AND labels.{marks.ROLE}=controller"
        request = compute_v1.AggregatedListInstancesRequest(project=self._settings.project, filter=labels)

        def listed() -> tuple[list[compute_v1.Instance], dict[str, str]]:
            pager: AggregatedListPager = self._instances.aggregated_list(request, retry=None, timeout=DEADLINE)
            pages = list(pager.pages)
            marked = [each for page in pages for each in instances_on(page) if marks.is_ours(self._settings, each.labels)]
            return marked, {zone: why for page in pages for zone, why in silent_on(page).items()}

        try:
            return self._call(listed, self._zone)
        except CallFailed as error:
            raise verdict(error.trouble, self._zone) from None

    def _delete(self, name: str, zone: str) -> None:
        give_up = time.monotonic() + OPERATION.total_seconds()
        named = self._named(name, zone)
        while True:
            try:
                operation = self._call(lambda: self._instances.delete_unary(retry=None, timeout=DEADLINE, **named), zone)
                self._wait(operation, zone, "", lambda trouble: trouble.is_absence)
                self._call(lambda: self._instances.get(retry=None, timeout=DEADLINE, **named), zone)
            except CallFailed as error:
                if error.trouble.is_absence:
                    return
                raise verdict(error.trouble, zone) from None
            if time.monotonic() > give_up:
                raise Unavailable(f"machine {name} in {zone} is still there; say the same again")
            time.sleep(LOOK_EVERY)

    def _do(
        self, call: Callable[[], compute_v1.Operation], zone: str, again: Callable[[Trouble], bool] = lambda _: False
    ) -> None:
        try:
            operation = self._call(call, zone, again)
        except CallFailed as error:
            raise verdict(error.trouble, zone) from None
        self._wait(operation, zone, "", lambda _: False)

    def _wait(self, operation: compute_v1.Operation, zone: str, what: str, fine: Callable[[Trouble], bool]) -> None:
        """Until the operation is done.

        Args:
            fine: whether an operation that failed so has done what was wanted.
        """
        give_up = time.monotonic() + OPERATION.total_seconds()
        named: dict[str, Any] = {"project": self._settings.project, "zone": zone, "operation": operation.name}
        while operation.status != compute_v1.Operation.Status.DONE:
            if time.monotonic() > give_up:
                raise Unavailable(f"Google is still at it after {OPERATION.seconds // 60} minutes (operation {operation.name})")
            time.sleep(LOOK_EVERY)
            try:
                operation = self._call(lambda: self._operations.get(retry=None, timeout=DEADLINE, **named), zone)
            except CallFailed as error:
                if error.trouble.is_absence:  # lost; the machine itself tells what became of it
                    return
                raise verdict(error.trouble, zone) from None
        trouble = trouble_of_operation(operation)
        if trouble is not None and not fine(trouble):
            raise verdict(trouble, zone, what)

    def _call(self, call: Callable[[], T], zone: str, again: Callable[[Trouble], bool] = lambda _: False) -> T:
        """The answer, tried again while the trouble is one that passes.

        Raises:
            CallFailed: it does not pass.
            RateLimited, Unavailable: it has not within the patience.
        """
        give_up, pause, told = time.monotonic() + PATIENCE.total_seconds(), 1.0, False
        while True:
            try:
                return call()
            except CALL_ERRORS as error:
                trouble = trouble_of(error)
            what: PlatformError = verdict(trouble, zone)
            passes = isinstance(what, RateLimited | Unavailable) and not trouble.is_absence and not trouble.is_taken
            if not passes and not again(trouble):
                raise CallFailed(trouble)
            if time.monotonic() > give_up:
                raise what
            if not told:
                self._tell(f"{what}; trying again")
                told = True
            time.sleep((trouble.retry_after or pause) * random.uniform(0.75, 1.25))
            pause = min(2 * pause, MAX_PAUSE)


def _seen(instance: compute_v1.Instance) -> SeenMachine:
    told = {item.key: item.value for item in instance.metadata.items}
    return SeenMachine(
        name=instance.name,
        zone=zone_of(instance.zone),
        status=instance.status,
        build=told.get(marks.BUILD_KEY, ""),
        address=next((each.network_i_p for each in instance.network_interfaces), ""),
        config=told.get(marks.CONFIG_KEY, ""),
        made_with=json.loads(told.get(marks.MADE_KEY, "{}")),
    )
