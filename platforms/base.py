"""What a platform is: five verbs on slices, and what they may refuse.

`cluster stop`, `cleanup` and diagnostics use the last two (`list_slices`, `delete_slice`) and so cannot start anything.
"""

from typing import Protocol

from iris.errors import IrisError
from iris.machines import DeleteResult, FleetListing, SliceFault, SliceObservation, SliceRequest

#: Bytes that the last words of a slice may have: some twenty lines of a console.
LAST_WORDS = 2_000


class PlatformError(IrisError):
    """The platform did not do what it was asked to.

    PlatformError
    ├── Refused            it said no, and will say so again for a while
    │   ├── StockOut           the zone has no such machines now
    │   ├── QuotaExceeded      the project may not have more of them
    │   └── BadConfig          it does not understand what is wanted, or does not allow it
    ├── RateLimited        too many calls; the same one may be made again later
    └── Unavailable        no answer, or one that says nothing: whether it was done is not known
    """


class Refused(PlatformError):
    """It said no, and will say so again for a while. Nothing was made."""

    fault = SliceFault.PLATFORM


class StockOut(Refused):
    """The zone has no such machines now; another may."""

    fault = SliceFault.STOCK_OUT


class QuotaExceeded(Refused):
    """The project may not have more of them.

    Args:
        scope: the zone or region in which that counts, or `ANYWHERE`; empty: that is not known.
    """

    fault = SliceFault.QUOTA

    def __init__(self, message: str, scope: str = "") -> None:
        super().__init__(message)
        self.scope = scope


class BadConfig(Refused):
    """It does not understand what is wanted, or does not allow it; it will not before somebody changes something."""

    fault = SliceFault.BAD_CONFIG


class RateLimited(PlatformError):
    """Too many calls; the same one may be made again later. Nothing was done."""


class Unavailable(PlatformError):
    """No answer, or one that says nothing. Whether it was done is not known: ask before saying it was not."""


class SliceOps(Protocol):
    """The narrow half: looking and deleting. It starts nothing."""

    async def list_slices(self) -> FleetListing:
        """All slices with this cluster's label, but none that people marked as theirs (`manual`).

        Raises:
            PlatformError: nothing at all could be listed.
        """
        ...

    async def delete_slice(self, slice_id: str, zone: str) -> DeleteResult:
        """Give it back. What is absent is GONE; GOING has to be asked again until it is.

        Raises:
            RateLimited, Unavailable: ask again.
        """
        ...


class Platform(SliceOps, Protocol):
    """Where machines come from."""

    async def create_slice(self, request: SliceRequest) -> SliceObservation:
        """Ask for the slice, or find it if it was asked for already; returns as soon as the platform has understood.

        Raises:
            Refused: nothing was made.
            RateLimited, Unavailable: say it again; the second time finds what the first has made.
        """
        ...

    async def describe_slice(self, slice_id: str, zone: str) -> SliceObservation | None:
        """The slice's machines; None when there are none.

        Raises:
            RateLimited, Unavailable: ask again.
        """
        ...

    async def last_words(self, slice_id: str, zone: str) -> str:
        """What its machines have said of themselves last, on their consoles or however the platform hears of it: for people who
        want to know why no agent came. At most `LAST_WORDS` bytes; empty: the platform has heard nothing, or there are none.

        Raises:
            RateLimited, Unavailable: ask again.
        """
        ...
