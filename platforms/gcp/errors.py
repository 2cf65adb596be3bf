"""Maps the errors of Google's APIs to `PlatformError`.

Stock-outs, quotas, rate limits and missing permissions share status codes, differently in each API.
A TPU stock-out and a TPU quota are both RESOURCE_EXHAUSTED. Compute's stock-out is 503, like an
outage; its 403 is a quota, a rate limit or a missing permission. Therefore this module examines
reasons and messages first, and the status code last.

    api_error_of(exception) ┐
    api_error_of_status     ├─> ApiError ── platform_error ──> PlatformError
    api_error_of_operation  ┘

Sources: the errors pages of both APIs, and messages seen in public issue trackers of SkyPilot, Ray
and Marin.
"""

import re
from collections.abc import Iterable
from typing import Any

from google.api_core import exceptions
from google.auth.exceptions import GoogleAuthError
from google.rpc import error_details_pb2
from google.rpc.code_pb2 import Code
from google.rpc.status_pb2 import Status

from iris.model.frozen import Frozen
from iris.model.slice.provisioning import ANYWHERE
from iris.model.slice.scale_groups import region_of
from iris.platforms.base import (
    BadConfig,
    PlatformError,
    QuotaExceeded,
    RateLimited,
    Refused,
    StockOut,
    Unavailable,
)
from iris.platforms.gcp.lean_compute import compute_v1

#: The exceptions that a call can raise: errors of the API, of the credentials, and of the
#: connection (`requests` raises subclasses of OSError).
CALL_ERRORS = (exceptions.GoogleAPIError, GoogleAuthError, OSError)

_RATE_REASONS = {
    "RATE_LIMIT_EXCEEDED",
    "rateLimitExceeded",
    "userRateLimitExceeded",
    "RESOURCE_OPERATION_RATE_EXCEEDED",
    "resourceOperationRateExceeded",
}
_QUOTA_REASONS = {"QuotaFailure", "QUOTA_EXCEEDED", "quotaExceeded", "limitExceeded"}
_STOCK_REASONS = {
    "ZONE_RESOURCE_POOL_EXHAUSTED",
    "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
    "VM_MIN_COUNT_NOT_REACHED",
    "RESOURCE_POOL_EXHAUSTED",
    "STOCKOUT",
    "insufficientCapacity",
    "stockout",
}
_BUSY_REASONS = {
    "RESOURCE_NOT_READY",
    "resourceNotReady",
    "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE",
    "resourceInUseByAnotherResource",
}
#: The reason in an error of a Compute operation if a machine was preempted during its creation, and
#: also if options cannot be combined. Only the message of the error says which.
_UNSUPPORTED = "UNSUPPORTED_OPERATION"
#: The reasons in an error that say that the service is not enabled in the project. Such a project
#: has no resources of the service.
_DISABLED_REASONS = {"SERVICE_DISABLED", "accessNotConfigured"}

#: Finds the project's name in the error of a disabled service: "… has not been used in project
#: my-project before or it is disabled."
_PROJECT_NAME = re.compile(r"\bin project ([a-z0-9][-a-z0-9.:]*[a-z0-9])")
_RATE_MESSAGE = re.compile(
    r"\brate limit|requests? per (minute|second|day)|too many requests|Requests' and limit",
    re.IGNORECASE,
)
_QUOTA_MESSAGE = re.compile(r"\bquotas?\b", re.IGNORECASE)
_STOCK_MESSAGE = re.compile(
    r"no more capacity|insufficient (reserved )?capacity|(does|do) not have enough resources|not"
    r" enough resources available"
    r"|resource pool exhausted|stockout|out of capacity",
    re.IGNORECASE,
)
#: Matches the name or message of a quota that counts in all regions. A quota that matches neither
#: this nor `_ZONE_QUOTA` counts per region.
_GLOBAL_QUOTA = re.compile(r"all[-_ ]?regions|\bglobal(ly)?\b", re.IGNORECASE)
#: Matches the name or message of a quota that counts per zone.
_ZONE_QUOTA = re.compile(r"per[-_ ]?zone|\bin zone\b", re.IGNORECASE)
_PREEMPTION_OF_CREATE = re.compile(
    r"while in state PREEMPTED|preempted (during|while) (creat|start)|failed to start due to"
    r" preemption",
    re.IGNORECASE,
)
_PREEMPTION = re.compile(r"\bpreempt(ed|ion)\b", re.IGNORECASE)
#: Matches the error for a person's own credentials without a project that pays for the calls.
#: Google gives this error the same reason as the error for a disabled service.
_NO_QUOTA_PROJECT = re.compile(r"requires a quota project", re.IGNORECASE)

#: The codes of errors that the request did not cause. The next try may succeed.
_NO_ANSWER = {
    Code.INTERNAL,
    Code.UNAVAILABLE,
    Code.DEADLINE_EXCEEDED,
    Code.UNKNOWN,
    Code.CANCELLED,
    Code.DATA_LOSS,
}
#: The code for each HTTP status. It is used if the error has no other code.
_OF_HTTP = {
    400: Code.INVALID_ARGUMENT,
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    404: Code.NOT_FOUND,
    409: Code.ABORTED,
    412: Code.FAILED_PRECONDITION,
    429: Code.RESOURCE_EXHAUSTED,
    499: Code.CANCELLED,
    500: Code.INTERNAL,
    501: Code.UNIMPLEMENTED,
    502: Code.UNAVAILABLE,
    503: Code.UNAVAILABLE,
    504: Code.DEADLINE_EXCEEDED,
}
#: The code for each reason in the errors of a Compute operation. It is used if the operation has no
#: HTTP status. All other reasons mean that the request is wrong (INVALID_ARGUMENT).
_OF_OPERATION = {
    "CONDITION_NOT_MET": Code.FAILED_PRECONDITION,
    "INTERNAL_ERROR": Code.INTERNAL,
    "OPERATION_CANCELED_BY_USER": Code.CANCELLED,
    "PERMISSIONS_ERROR": Code.PERMISSION_DENIED,
    "RESOURCE_NOT_FOUND": Code.NOT_FOUND,
    "SERVICE_UNAVAILABLE": Code.UNAVAILABLE,
    "TIMEOUT": Code.DEADLINE_EXCEEDED,
}


class ApiError(Frozen):
    """An error of the TPU API or the Compute API."""

    #: The code of the error, from `google.rpc.Code`.
    code: int
    message: str
    #: The machine-readable reasons of the error, such as QUOTA_EXCEEDED. They come from ErrorInfo
    #: or from the errors of Compute; a QuotaFailure among the details counts as a reason, too.
    reasons: frozenset[str] = frozenset()
    #: Google's name of the quota that was exceeded; empty if the error is not about a quota.
    quota: str = ""
    #: The seconds that the caller should wait before a retry; None if the service gave no time.
    retry_after: float | None = None
    #: The ids or numbers of the projects that made the call, as the error names them.
    consumers: frozenset[str] = frozenset()

    @property
    def is_absence(self) -> bool:
        """Returns True if there is no resource of that name."""
        return bool(self.code == Code.NOT_FOUND)

    @property
    def already_exists(self) -> bool:
        """Returns True if a resource of that name exists already."""
        return self.code == Code.ALREADY_EXISTS or bool(
            self.reasons & {"alreadyExists", "RESOURCE_ALREADY_EXISTS"}
        )

    @property
    def is_preemption(self) -> bool:
        """Returns True if the resource was preempted before it was complete."""
        pattern = _PREEMPTION if _UNSUPPORTED in self.reasons else _PREEMPTION_OF_CREATE
        return pattern.search(self.message) is not None

    @property
    def is_busy(self) -> bool:
        """Returns True if another operation on the resource is in progress."""
        return bool(self.reasons & _BUSY_REASONS or self.code == Code.ABORTED)

    @property
    def is_cancelled(self) -> bool:
        """Returns True if the resource was deleted during its creation, which is not a failure."""
        return (
            self.is_busy
            or self.code == Code.CANCELLED
            or "OPERATION_CANCELED_BY_USER" in self.reasons
        )

    @property
    def is_no_answer(self) -> bool:
        """Returns True if the error does not answer the call."""
        return self.code in _NO_ANSWER and not self.is_stock_out

    @property
    def is_unavailable(self) -> bool:
        """Returns True if the service, or the called part of it, is not available."""
        return self.is_no_answer and bool(self.code == Code.UNAVAILABLE)

    @property
    def is_service_disabled(self) -> bool:
        """Returns True if the service is disabled in some project, which then has no resources
        there; see `is_disabled_in`.
        """
        return (
            bool(self.reasons & _DISABLED_REASONS)
            and _NO_QUOTA_PROJECT.search(self.message) is None
        )

    def is_disabled_in(self, project: str) -> bool:
        """Returns True if the service is disabled in this project.

        The error may be about another project, to which the caller's credentials belong. If the
        error names only a number, the project is unknown and the result is False.
        """
        return self.is_service_disabled and project in self.consumers

    @property
    def is_rate_limit(self) -> bool:
        """Returns True if there were too many calls. A quota on the number of machines is not a
        rate limit.
        """
        if self.reasons & _RATE_REASONS:
            return True
        if self.reasons & (_QUOTA_REASONS | _STOCK_REASONS) or self.code != Code.RESOURCE_EXHAUSTED:
            return False
        return _RATE_MESSAGE.search(self.message) is not None

    @property
    def is_quota(self) -> bool:
        if self.reasons & _QUOTA_REASONS:
            return True
        # Messages on missing permissions also mention quotas: quota projects, and the permission to
        # request more quota.
        limited = self.code == Code.RESOURCE_EXHAUSTED and not self.is_stock_out
        return limited and _QUOTA_MESSAGE.search(self.message) is not None

    def quota_scope(self, zone: str) -> str:
        """Returns the scope of the quota that was exceeded in this zone: the zone, its region, or
        `ANYWHERE`.
        """
        text = f"{self.quota} {self.message}"
        if _GLOBAL_QUOTA.search(text):
            return ANYWHERE
        return zone if _ZONE_QUOTA.search(text) else region_of(zone)

    @property
    def is_stock_out(self) -> bool:
        return (
            bool(self.reasons & _STOCK_REASONS) or _STOCK_MESSAGE.search(self.message) is not None
        )


class CallFailed(Exception):
    """The error if a call to Google's APIs failed."""

    def __init__(self, api_error: ApiError) -> None:
        super().__init__(api_error.message)
        self.api_error = api_error


def platform_error(api_error: ApiError, zone: str, what: str = "") -> PlatformError:
    """Returns the `PlatformError` that the error means for a caller that creates or changes
    something.

    Args:
        what: the requested kind of machine, such as `v5litepod-16 (spot)`.
    """
    message = _shortened(api_error.message)
    of = f" of {what}" if what else ""
    if api_error.is_rate_limit:
        return RateLimited(f"too many calls to Google Cloud: {message}")
    if api_error.is_quota:
        # The quota stands first, because callers cut the end of the message.
        named = f" {api_error.quota}" if api_error.quota else ""
        return QuotaExceeded(
            f"quota{named} is used up in {zone}: {message}", api_error.quota_scope(zone)
        )
    if api_error.is_stock_out or api_error.is_preemption:
        return StockOut(f"{zone} is out{of}: {message}")
    if api_error.is_busy:
        return Unavailable(f"{zone} has another operation on the resource in progress: {message}")
    if api_error.code == Code.UNAUTHENTICATED:
        return Unavailable(f"Google Cloud rejected the credentials: {message}")
    if api_error.code == Code.PERMISSION_DENIED:
        return BadConfig(f"no permission in {zone}: {message}; grant the roles in docs/gcp.md")
    if api_error.code == Code.RESOURCE_EXHAUSTED:
        return StockOut(f"{zone} is out{of}: {message}")
    if api_error.code in _NO_ANSWER:
        return Unavailable(f"no answer from Google Cloud for {zone}: {message}")
    return BadConfig(f"Google Cloud rejected the request for {zone}: {message}")


def retryable_error(api_error: ApiError, zone: str) -> RateLimited | Unavailable:
    """Returns the `PlatformError` that the error means for a caller that reads or deletes, and can
    only repeat the call.
    """
    error = platform_error(api_error, zone)
    if isinstance(error, RateLimited | Unavailable):
        return error
    if isinstance(error, Refused) and api_error.code == Code.RESOURCE_EXHAUSTED:
        return RateLimited(f"too many calls to Google Cloud: {_shortened(api_error.message)}")
    return Unavailable(str(error))


# -- Reading errors
# --------------------------------------------------------------------------------------------------


def api_error_of(error: Exception) -> ApiError:
    """Converts an exception of a call. An expired deadline and a broken connection count as no
    answer.
    """
    if isinstance(error, exceptions.GoogleAPICallError):
        return _of_call(error)
    if isinstance(error, GoogleAuthError):
        return ApiError(code=Code.UNAUTHENTICATED, message=str(error) or type(error).__name__)
    return ApiError(code=Code.UNAVAILABLE, message=str(error) or type(error).__name__)


def api_error_of_status(status: Status) -> ApiError:
    """Converts the status of a long-running operation of the TPU API, or of a failed queued
    resource.
    """
    details = [unpacked for each in status.details if (unpacked := _unpacked(each)) is not None]
    return _with_details(status.code, status.message, details)


def api_error_of_operation(operation: compute_v1.Operation) -> ApiError | None:
    """Converts the errors of a finished operation of Compute. Returns None if it succeeded."""
    errors = list(operation.error.errors)
    if not errors and operation.http_error_status_code < 400:
        return None
    quotas = [each.error_details for each in errors]
    named = [
        detail.quota_info.metric_name or detail.quota_info.limit_name
        for details in quotas
        for detail in details
    ]
    message = (
        "; ".join(each.message for each in errors if each.message) or operation.http_error_message
    )
    reasons = [each.code for each in errors if each.code]
    code = _OF_HTTP.get(operation.http_error_status_code, Code.UNKNOWN)
    if reasons and not operation.http_error_status_code:
        code = next(
            (_OF_OPERATION[each] for each in reasons if each in _OF_OPERATION),
            Code.INVALID_ARGUMENT,
        )
    return ApiError(
        code=code,
        message=message,
        reasons=frozenset(reasons),
        quota=next((name for name in named if name), ""),
    )


def _of_call(error: exceptions.GoogleAPICallError) -> ApiError:
    status = error.grpc_status_code
    code = (
        Code.Value(status.name)
        if status is not None
        else _OF_HTTP.get(error.code or 0, Code.UNKNOWN)
    )
    api_error = _with_details(
        code, str(error.message), [each for each in error.details if not isinstance(each, dict)]
    )
    reasons = set(api_error.reasons)
    # Compute's errors are JSON: a list of errors with reasons, and details as dictionaries.
    for each in (*error.errors, *error.details):
        if isinstance(each, dict):
            reasons.add(str(each.get("reason", "")))
    if error.reason:
        reasons.add(str(error.reason))
    headers = getattr(error.response, "headers", None)
    if headers is not None and error.code == 429:
        reasons.add("rateLimitExceeded")  # the only meaning of 429 in HTTP
    header = (headers or {}).get("Retry-After", "")
    metadata = error.metadata or {}
    consumers = {
        str(metadata.get(key, "")).removeprefix("projects/")
        for key in ("consumer", "containerInfo")
    }
    return api_error.model_copy(
        update={
            "reasons": frozenset(reasons - {""}),
            "consumers": frozenset(
                (consumers | set(_PROJECT_NAME.findall(api_error.message))) - {""}
            ),
            "retry_after": float(header) if header.isdecimal() else api_error.retry_after,
        }
    )


def _with_details(code: int, message: str, details: Iterable[Any]) -> ApiError:
    reasons: set[str] = set()
    quota, retry_after = "", None
    for detail in details:
        if isinstance(detail, error_details_pb2.QuotaFailure):
            reasons.add("QuotaFailure")
            violations = [each.description or each.subject for each in detail.violations]
            quota = _quota_name(" ".join((message, *violations)))
            message = (
                message
                if any(each in message for each in violations)
                else " ".join((message, *violations)).strip()
            )
        elif isinstance(detail, error_details_pb2.ErrorInfo):
            reasons.add(detail.reason)
            quota = quota or detail.metadata.get("quota_metric", "")
        elif isinstance(detail, error_details_pb2.RetryInfo):
            retry_after = detail.retry_delay.seconds + detail.retry_delay.nanos / 1e9
    return ApiError(
        code=code,
        message=message,
        reasons=frozenset(reasons),
        quota=quota or _quota_name(message),
        retry_after=retry_after,
    )


def _unpacked(packed: Any) -> Any:
    for kind in (
        error_details_pb2.QuotaFailure,
        error_details_pb2.ErrorInfo,
        error_details_pb2.RetryInfo,
    ):
        if packed.Is(kind.DESCRIPTOR):
            message = kind()
            packed.Unpack(message)
            return message
    return None


def _quota_name(message: str) -> str:
    found = re.search(r"[Qq]uota(?: metric)? '([^']+)'", message)
    return found[1] if found else ""


def _shortened(message: str) -> str:
    """Shortens a message to 400 characters. The first sentences of Google's long messages say what
    happened.
    """
    flat = " ".join(message.split())
    return flat if len(flat) <= 400 else f"{flat[:397]}..."
