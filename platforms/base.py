"""Defines the contract of a platform: five calls on slices, and the errors that they may raise.

`cluster stop`, `cleanup` and diagnostics use only `SliceOps` (`list_slices`, `delete_slice`), so
they cannot start anything.
"""

from typing import Protocol

from iris.model.errors import IrisError
from iris.model.slice.provisioning import (
    DeleteResult,
    FleetListing,
    SliceFault,
    SliceObservation,
    SliceRequest,
)

#: The maximum number of bytes that `Platform.last_output` returns: about twenty console lines.
MAX_OUTPUT_BYTES = 2_000


class PlatformError(IrisError):
    """The error if a platform did not do what a call requested.

    PlatformError
    ├── Refused            the platform refused, and keeps refusing for a while
    │   ├── StockOut           the zone has no such machines now
    │   ├── QuotaExceeded      the project may not have more such machines
    │   └── BadConfig          the platform does not understand the request, or does not allow it
    ├── RateLimited        too many calls; the caller may repeat the call later
    └── Unavailable        no answer, or an inconclusive one: the result is unknown
    """


class Refused(PlatformError):
    """The error if the platform refused the request and will keep refusing it for a while. The
    platform created nothing.
    """

    fault = SliceFault.PLATFORM


class StockOut(Refused):
    """The error if the zone has no machines of this kind now. Another zone may have some."""

    fault = SliceFault.STOCK_OUT


class QuotaExceeded(Refused):
    """The error if the project may not have more machines of this kind.

    Args:
        scope: the zone or region in which the quota counts, or `ANYWHERE`; empty if it is not
            known.
    """

    fault = SliceFault.QUOTA

    def __init__(self, message: str, scope: str = "") -> None:
        super().__init__(message)
        self.scope = scope


class BadConfig(Refused):
    """The error if the platform does not understand the request, or does not allow it. The request
    fails until a person changes something.
    """

    fault = SliceFault.BAD_CONFIG


class RateLimited(PlatformError):
    """The error if the platform received too many calls and did nothing. The caller may repeat the
    call later.
    """


class Unavailable(PlatformError):
    """The error if the platform gave no answer, or an inconclusive one. The call may have taken
    effect, so the caller has to check.
    """


class SliceOps(Protocol):
    """The platform's calls that list and delete slices. They cannot create machines."""

    async def list_slices(self) -> FleetListing:
        """Returns all slices with this cluster's label, except slices that a person marked as
        `manual`.

        Raises:
            PlatformError: the platform could not list anything.
        """
        ...

    async def delete_slice(self, slice_id: str, zone: str) -> DeleteResult:
        """Deletes the slice. After GOING, the caller has to repeat the call.

        GONE is a promise: no program runs on a machine of the slice any more, so its tasks may
        start elsewhere. LEFT promises only that the cluster has nothing more to delete.

        Raises:
            RateLimited, Unavailable: the caller has to repeat the call.
        """
        ...


class Platform(SliceOps, Protocol):
    """All calls that a platform must implement. They list, delete, create and describe slices."""

    async def create_slice(self, request: SliceRequest) -> SliceObservation:
        """Requests the slice, or finds it if an earlier call requested it. Returns as soon as the
        platform accepts the request.

        Raises:
            Refused: the platform created nothing. RateLimited, Unavailable: the caller has to
            repeat the call; the repeated call finds what the first one created.
        """
        ...

    async def describe_slice(self, slice_id: str, zone: str) -> SliceObservation | None:
        """Returns the state of the slice's machines, or None if there are none.

        Raises:
            RateLimited, Unavailable: the caller has to repeat the call.
        """
        ...

    async def last_output(self, slice_id: str, zone: str) -> str:
        """Returns the latest diagnostics of the slice's machines, such as the end of a console, at
        most `MAX_OUTPUT_BYTES` bytes.

        The text is for people who want to know why no agent started. It is empty if there are no
        diagnostics or no machines.

        Raises:
            RateLimited, Unavailable: the caller has to repeat the call.
        """
        ...
