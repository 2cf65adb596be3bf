"""Operates the control plane's machine: finds, creates, starts, resets, updates and deletes it.

Each operation is complete when its method returns, and may be repeated. The methods block, as
Compute's client does: only CLI commands use them. Calls that fail temporarily are retried for
`OPERATION_TIMEOUT`.
"""

import json
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from google.auth.exceptions import GoogleAuthError
from pydantic import Field

from iris.model.frozen import Frozen
from iris.platforms.base import BadConfig, RateLimited, Unavailable
from iris.platforms.gcp import labels as label_rules
from iris.platforms.gcp.clients import DEADLINE, connect
from iris.platforms.gcp.compute import instances_on, silent_on
from iris.platforms.gcp.create_requests import zone_of
from iris.platforms.gcp.errors import (
    CALL_ERRORS,
    ApiError,
    CallFailed,
    api_error_of,
    api_error_of_operation,
    platform_error,
    retryable_error,
)
from iris.platforms.gcp.lean_compute import AggregatedListPager, compute_v1
from iris.platforms.gcp.settings import GcpSettings
from iris.retrying import poll, retry

T = TypeVar("T")

#: The longest time for which a call is retried, if Google refuses it temporarily or does not answer
#: it.
OPERATION_TIMEOUT = timedelta(minutes=2)
#: The longest wait for the end of an operation. The creation of a machine takes about a minute, and
#: its deletion about two.
OPERATION = timedelta(minutes=10)
#: The time between two polls of an operation, in seconds.
POLL_INTERVAL_S = 1.0
#: The longest time between two tries of a call, in seconds.
MAX_PAUSE = 15.0
#: The longest random time that is added to the delay between two tries, in seconds.
JITTER = 0.5

LOGIN = "gcloud auth application-default login"
RUNNING = "RUNNING"
#: Google's states of a machine that was stopped. Its disk still exists.
_OFF = {"TERMINATED", "STOPPED"}
_SUSPENDED = {"SUSPENDED"}


class SeenMachine(Frozen):
    """The state of the machine of a control plane, as Google reports it."""

    name: str
    zone: str
    #: Google's status of the machine, such as RUNNING.
    status: str
    #: The hash of the machine's definition at its creation or its last rebuild; see
    #: `labels.BUILD_KEY`.
    build: str = ""
    #: The address of the machine inside its network.
    address: str = ""
    #: The configuration with which the machine boots; see `labels.CONFIG_KEY`.
    config: str = ""
    #: The settings that cannot change after the machine's creation; see `controller_vm.made_with`.
    made_with: dict[str, str] = Field(default_factory=dict)


class ControllerMachine:
    """Operates the machine of one cluster's control plane in Google Cloud.

    Args:
        zone: the zone in which the machine is created. An existing machine is found in any zone.
        tell: receives progress messages during long operations.

    Raises:
        Unavailable: there are no credentials.
    """

    def __init__(
        self, settings: GcpSettings, zone: str, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self._settings = settings
        self._name = label_rules.controller_name(settings)
        self._zone = zone
        self._tell = tell
        try:
            clients = connect(settings)
        except GoogleAuthError as error:
            raise Unavailable(f"no credentials for Google Cloud: {error}; run {LOGIN}") from None
        self._instances, self._operations = clients.instances, clients.operations

    def find(self) -> SeenMachine | None:
        """Returns the machine from any zone; None if there is none.

        Raises:
            BadConfig: a machine of its name belongs to another owner, or the account has no
            permission to read. RateLimited, Unavailable: Google did not answer, or not for every
            zone, and the machine may be in one of the others.
        """
        there = self._get(self._zone)
        if there is None:
            marked, silent = self._of_label()
            if not marked and silent:
                zones = "; ".join(f"{zone} ({why})" for zone, why in sorted(silent.items()))
                raise Unavailable(
                    f"cannot find the control plane of cluster {self._settings.cluster}: zones do"
                    f" not answer: {zones}; try again later"
                )
            there = next(iter(marked), None)
        if there is None:
            return None
        seen = _seen(there)
        if not label_rules.is_ours(self._settings, there.labels):
            raise BadConfig(
                f"machine {seen.name} in {seen.zone} belongs to another cluster; delete it, or"
                " choose another name or platform.gcp.label_prefix"
            )
        return seen

    def create(self, request: compute_v1.InsertInstanceRequest) -> None:
        """Creates the machine. If another process has created it in the meantime, that is a
        success.

        Raises:
            PlatformError: Google refused and created nothing.
        """
        what = request.instance_resource.machine_type.rpartition("/")[2]
        try:
            operation = self._call(
                lambda: self._instances.insert_unary(request, retry=None, timeout=DEADLINE),
                self._zone,
            )
        except CallFailed as error:
            if not error.api_error.already_exists:
                raise platform_error(error.api_error, self._zone, what) from None
        else:
            self._wait(operation, self._zone, what, lambda api_error: api_error.already_exists)

    def switch_on(self, seen: SeenMachine) -> None:
        """Starts a stopped machine or resumes a suspended one. Does nothing to a running
        machine.
        """
        named = self._named(seen.name, seen.zone)
        if seen.status in _OFF:
            self._do(
                lambda: self._instances.start_unary(retry=None, timeout=DEADLINE, **named),
                seen.zone,
            )
        elif seen.status in _SUSPENDED:
            self._do(
                lambda: self._instances.resume_unary(retry=None, timeout=DEADLINE, **named),
                seen.zone,
            )

    def reset(self, seen: SeenMachine) -> None:
        """Resets the machine, which boots again. Its disk is kept."""
        named = self._named(seen.name, seen.zone)
        self._do(
            lambda: self._instances.reset_unary(retry=None, timeout=DEADLINE, **named), seen.zone
        )

    def rebuild(self, seen: SeenMachine, request: compute_v1.InsertInstanceRequest) -> None:
        """Sets the metadata that a machine created by this request would have. The change takes
        effect at the next boot.
        """
        asked = request.instance_resource.metadata.items
        # The settings in MADE_KEY never change after the creation.
        wanted = {item.key: item.value for item in asked if item.key != label_rules.MADE_KEY}

        def change() -> compute_v1.Operation:
            named = self._named(seen.name, seen.zone)
            there = self._instances.get(retry=None, timeout=DEADLINE, **named)
            others = [item for item in there.metadata.items if item.key not in wanted]
            items = [
                *others,
                *(compute_v1.Items(key=key, value=value) for key, value in wanted.items()),
            ]
            # Google refuses the call if another one changed the metadata first; `again` then
            # retries it.
            metadata = compute_v1.Metadata(items=items, fingerprint=there.metadata.fingerprint)
            return self._instances.set_metadata_unary(
                metadata_resource=metadata, retry=None, timeout=DEADLINE, **named
            )

        self._do(
            change, seen.zone, again=lambda api_error: bool(api_error.reasons & {"conditionNotMet"})
        )

    def delete(self) -> list[str]:
        """Deletes the machine, and every other that is marked as this cluster's control plane.
        Returns their names.

        Returns only after Google confirms that the machines are gone. A machine in a zone that does
        not answer is left. The deletion of the cluster's slices reports that zone, too.

        Raises:
            PlatformError: a machine still exists.
        """
        there = {(each.name, zone_of(each.zone)): each for each in self._of_label()[0]}
        named = self._get(self._zone)
        if named is not None and label_rules.is_ours(self._settings, named.labels):
            there[(named.name, zone_of(named.zone))] = named
        for name, zone in there:
            self._tell(f"deleting machine {name} in {zone}")
            self._delete(name, zone)
        return sorted(name for name, _ in there)

    def console(self, seen: SeenMachine) -> str:
        """Returns the output of the serial console. Google keeps the last megabyte.

        Raises:
            RateLimited, Unavailable: Google did not answer.
        """
        named = self._named(seen.name, seen.zone)
        try:
            return self._call(
                lambda: (
                    self._instances.get_serial_port_output(
                        retry=None, timeout=DEADLINE, **named
                    ).contents
                ),
                seen.zone,
            )
        except CallFailed as error:
            raise retryable_error(error.api_error, seen.zone) from None

    # -- Private methods
    # ----------------------------------------------------------------------------------------------

    def _named(self, name: str, zone: str) -> dict[str, Any]:
        return {"project": self._settings.project, "zone": zone, "instance": name}

    def _get(self, zone: str) -> compute_v1.Instance | None:
        named = self._named(self._name, zone)
        try:
            return self._call(
                lambda: self._instances.get(retry=None, timeout=DEADLINE, **named), zone
            )
        except CallFailed as error:
            if error.api_error.is_absence:
                return None
            raise platform_error(error.api_error, zone) from None

    def _of_label(self) -> tuple[list[compute_v1.Instance], dict[str, str]]:
        """Returns all machines that are marked as this cluster's control plane, and the reason for
        each unreachable zone.
        """
        labels = (
            f"labels.{label_rules.UID}={self._settings.uid} AND"
            f" labels.{label_rules.ROLE}=controller"
        )
        request = compute_v1.AggregatedListInstancesRequest(
            project=self._settings.project, filter=labels
        )

        def listed() -> tuple[list[compute_v1.Instance], dict[str, str]]:
            pager: AggregatedListPager = self._instances.aggregated_list(
                request, retry=None, timeout=DEADLINE
            )
            pages = list(pager.pages)
            marked = [
                each
                for page in pages
                for each in instances_on(page)
                if label_rules.is_ours(self._settings, each.labels)
            ]
            return marked, {zone: why for page in pages for zone, why in silent_on(page).items()}

        try:
            return self._call(listed, self._zone)
        except CallFailed as error:
            raise platform_error(error.api_error, self._zone) from None

    def _delete(self, name: str, zone: str) -> None:
        named = self._named(name, zone)

        def is_gone() -> bool:
            try:
                operation = self._call(
                    lambda: self._instances.delete_unary(retry=None, timeout=DEADLINE, **named),
                    zone,
                )
                self._wait(operation, zone, "", lambda api_error: api_error.is_absence)
                self._call(lambda: self._instances.get(retry=None, timeout=DEADLINE, **named), zone)
            except CallFailed as error:
                if error.api_error.is_absence:
                    return True
                raise platform_error(error.api_error, zone) from None
            return False

        if not poll(is_gone, every=POLL_INTERVAL_S, timeout=OPERATION):
            raise Unavailable(f"machine {name} in {zone} still exists; run the command again")

    def _do(
        self,
        call: Callable[[], compute_v1.Operation],
        zone: str,
        again: Callable[[ApiError], bool] = lambda _: False,
    ) -> None:
        try:
            operation = self._call(call, zone, again)
        except CallFailed as error:
            raise platform_error(error.api_error, zone) from None
        self._wait(operation, zone, "", lambda _: False)

    def _wait(
        self,
        operation: compute_v1.Operation,
        zone: str,
        what: str,
        fine: Callable[[ApiError], bool],
    ) -> None:
        """Waits until the operation is done.

        Args:
            fine: returns True for an error that counts as success.
        """
        give_up = time.monotonic() + OPERATION.total_seconds()
        named: dict[str, Any] = {
            "project": self._settings.project,
            "zone": zone,
            "operation": operation.name,
        }
        while operation.status != compute_v1.Operation.Status.DONE:
            if time.monotonic() > give_up:
                raise Unavailable(
                    f"operation {operation.name} is not done after {OPERATION.seconds // 60}"
                    " minutes; run the command again"
                )
            time.sleep(POLL_INTERVAL_S)
            try:
                operation = self._call(
                    lambda: self._operations.get(retry=None, timeout=DEADLINE, **named), zone
                )
            except CallFailed as error:
                # The operation is lost; the state of the machine shows its result.
                if error.api_error.is_absence:
                    return
                raise platform_error(error.api_error, zone) from None
        api_error = api_error_of_operation(operation)
        if api_error is not None and not fine(api_error):
            raise platform_error(api_error, zone, what)

    def _call(
        self, call: Callable[[], T], zone: str, again: Callable[[ApiError], bool] = lambda _: False
    ) -> T:
        """Makes a call and returns its answer. Retries it after a temporary error.

        Args:
            again: returns True for a further error to retry.

        Raises:
            CallFailed: the error is not temporary.
            RateLimited, Unavailable: the error still occurred after `OPERATION_TIMEOUT`.
        """
        reported = False

        def retryable(api_error: ApiError) -> bool:
            known = api_error.is_absence or api_error.already_exists
            passes = not known and isinstance(
                platform_error(api_error, zone), RateLimited | Unavailable
            )
            return passes or again(api_error)

        def delay(error: Exception) -> bool | float:
            nonlocal reported
            if not isinstance(error, CALL_ERRORS) or not retryable(
                api_error := api_error_of(error)
            ):
                return False
            if not reported:
                self._tell(f"{platform_error(api_error, zone)}; retrying")
                reported = True
            return api_error.retry_after or True

        try:
            return retry(
                delay, every=1.0, up_to=MAX_PAUSE, jitter=JITTER, timeout=OPERATION_TIMEOUT
            )(call)()
        except CALL_ERRORS as error:
            api_error = api_error_of(error)
            raise (
                platform_error(api_error, zone) if retryable(api_error) else CallFailed(api_error)
            ) from None


def _seen(instance: compute_v1.Instance) -> SeenMachine:
    metadata = {item.key: item.value for item in instance.metadata.items}
    return SeenMachine(
        name=instance.name,
        zone=zone_of(instance.zone),
        status=instance.status,
        build=metadata.get(label_rules.BUILD_KEY, ""),
        address=next((each.network_i_p for each in instance.network_interfaces), ""),
        config=metadata.get(label_rules.CONFIG_KEY, ""),
        made_with=json.loads(metadata.get(label_rules.MADE_KEY, "{}")),
    )
