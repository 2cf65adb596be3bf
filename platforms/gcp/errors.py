"""What Google's many ways to say no mean for Iris.

Stock-outs, quotas, rate limits and missing rights share status codes, and each API in its own way: a TPU stock-out and a TPU
quota are both RESOURCE_EXHAUSTED; Compute's stock-out is 503, like an outage, and its 403 may be a quota, a rate limit or a
missing right. So reasons and words go first, and the status is what is left.

    trouble_of(exception) ┐
    trouble_of_status     ├─> Trouble ── verdict ──> PlatformError
    trouble_of_operation  ┘

Sources: the errors pages of both APIs, and messages seen in public issue trackers of SkyPilot, Ray and Marin.
"""

import re
from collections.abc import Iterable
from typing import Any

from google.api_core import exceptions
from google.auth.exceptions import GoogleAuthError
from google.cloud import compute_v1
from google.rpc import error_details_pb2
from google.rpc.code_pb2 import Code
from google.rpc.status_pb2 import Status
from pydantic import BaseModel, ConfigDict

from iris.machines import ANYWHERE
from iris.platforms.base import BadConfig, PlatformError, QuotaExceeded, RateLimited, Refused, StockOut, Unavailable
from iris.scale_groups import region_of

#: What a call may raise: Google's own verdicts, credentials, and a connection that breaks (`requests` raises kinds of OSError).
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
#: Compute's operations say this of a machine that was taken back while it was being made, and of parts that do not go together.
_UNSUPPORTED = "UNSUPPORTED_OPERATION"
#: The service is not switched on in the project: there can be nothing in it.
_DISABLED_REASONS = {"SERVICE_DISABLED", "accessNotConfigured"}

#: "… has not been used in project my-project before or it is disabled."
_PROJECT_WORDS = re.compile(r"\bin project ([a-z0-9][-a-z0-9.:]*[a-z0-9])")
_RATE_WORDS = re.compile(r"\brate limit|requests? per (minute|second|day)|too many requests|Requests' and limit", re.IGNORECASE)
_QUOTA_WORDS = re.compile(r"\bquotas?\b", re.IGNORECASE)
_STOCK_WORDS = re.compile(
    r"no more capacity|insufficient (reserved )?capacity|(does|do) not have enough resources|not enough resources available"
    r"|resource pool exhausted|stockout|out of capacity",
    re.IGNORECASE,
)
#: A quota that counts in every region, and one that counts in a zone; all others count in a region.
_EVERYWHERE_WORDS = re.compile(r"all[-_ ]?regions|\bglobal(ly)?\b", re.IGNORECASE)
_PER_ZONE_WORDS = re.compile(r"per[-_ ]?zone|\bin zone\b", re.IGNORECASE)
_TAKEN_BACK_WORDS = re.compile(
    r"while in state PREEMPTED|preempted (during|while) (creat|start)|failed to start due to preemption", re.IGNORECASE
)
_PREEMPTED_WORDS = re.compile(r"\bpreempt(ed|ion)\b", re.IGNORECASE)
#: Said of somebody's own credentials, to which no project belongs that pays for calls; with the reason of a disabled service.
_NO_QUOTA_PROJECT = re.compile(r"requires a quota project", re.IGNORECASE)

#: What is not a sign of any fault of the request, and may be over at the next try.
_NO_ANSWER = {Code.INTERNAL, Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.UNKNOWN, Code.CANCELLED, Code.DATA_LOSS}
#: By HTTP status, for what has no other code.
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
#: By the code of an error in an operation that has no HTTP status; any other is a fault of the request.
_OF_OPERATION = {
    "CONDITION_NOT_MET": Code.FAILED_PRECONDITION,
    "INTERNAL_ERROR": Code.INTERNAL,
    "OPERATION_CANCELED_BY_USER": Code.CANCELLED,
    "PERMISSIONS_ERROR": Code.PERMISSION_DENIED,
    "RESOURCE_NOT_FOUND": Code.NOT_FOUND,
    "SERVICE_UNAVAILABLE": Code.UNAVAILABLE,
    "TIMEOUT": Code.DEADLINE_EXCEEDED,
}


class Trouble(BaseModel):
    """What either API has said instead of doing what it was asked to."""

    model_config = ConfigDict(frozen=True)

    #: One of `google.rpc.Code`.
    code: int
    words: str
    #: Machine-readable: of ErrorInfo, of Compute's errors, or the kind of a detail.
    reasons: frozenset[str] = frozenset()
    #: The quota it is about, as Google calls it.
    quota: str = ""
    #: Seconds that the service wants to be left alone; None: it does not say.
    retry_after: float | None = None
    #: The projects whose call it was, as far as it says: ids, or numbers.
    consumers: frozenset[str] = frozenset()

    @property
    def is_absence(self) -> bool:
        """There is nothing of that name."""
        return bool(self.code == Code.NOT_FOUND)

    @property
    def is_taken(self) -> bool:
        """There is something of that name already."""
        return self.code == Code.ALREADY_EXISTS or bool(self.reasons & {"alreadyExists", "RESOURCE_ALREADY_EXISTS"})

    @property
    def is_taken_back(self) -> bool:
        """It was preempted before it was whole."""
        said = _PREEMPTED_WORDS if _UNSUPPORTED in self.reasons else _TAKEN_BACK_WORDS
        return said.search(self.words) is not None

    @property
    def is_busy(self) -> bool:
        """Something else is being done to it."""
        return bool(self.reasons & _BUSY_REASONS or self.code == Code.ABORTED)

    @property
    def is_called_off(self) -> bool:
        """Not a failure: somebody has deleted it while it was being made."""
        return self.is_busy or self.code == Code.CANCELLED or "OPERATION_CANCELED_BY_USER" in self.reasons

    @property
    def is_no_answer(self) -> bool:
        """It says nothing of what was asked."""
        return self.code in _NO_ANSWER and not self.is_stock_out

    @property
    def is_away(self) -> bool:
        """The service, or the part of it that was asked, is not available."""
        return self.is_no_answer and bool(self.code == Code.UNAVAILABLE)

    @property
    def is_service_disabled(self) -> bool:
        """Some project does not use the service, and so has nothing there: see `is_disabled_in`."""
        return bool(self.reasons & _DISABLED_REASONS) and _NO_QUOTA_PROJECT.search(self.words) is None

    def is_disabled_in(self, project: str) -> bool:
        """This project does not use the service. A refusal may be about another, to which somebody's credentials belong; and with
        a number it does not say about which it is."""
        return self.is_service_disabled and project in self.consumers

    @property
    def is_rate_limit(self) -> bool:
        """Too many calls; how many machines there may be is another quota."""
        if self.reasons & _RATE_REASONS:
            return True
        if self.reasons & (_QUOTA_REASONS | _STOCK_REASONS) or self.code != Code.RESOURCE_EXHAUSTED:
            return False
        return _RATE_WORDS.search(self.words) is not None

    @property
    def is_quota(self) -> bool:
        if self.reasons & _QUOTA_REASONS:
            return True
        # A missing right may have to do with quotas, too: of projects that pay for calls, and of asking for more.
        limited = self.code == Code.RESOURCE_EXHAUSTED and not self.is_stock_out
        return limited and _QUOTA_WORDS.search(self.words) is not None

    def quota_scope(self, zone: str) -> str:
        """Where the quota counts of which this zone is one: there, in its region, or anywhere."""
        said = f"{self.quota} {self.words}"
        if _EVERYWHERE_WORDS.search(said):
            return ANYWHERE
        return zone if _PER_ZONE_WORDS.search(said) else region_of(zone)

    @property
    def is_stock_out(self) -> bool:
        return bool(self.reasons & _STOCK_REASONS) or _STOCK_WORDS.search(self.words) is not None


class CallFailed(Exception):
    """A call of Google's APIs was not answered as hoped."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.words)
        self.trouble = trouble


def verdict(trouble: Trouble, zone: str, what: str = "") -> PlatformError:
    """What the trouble means for one who wants something made.

    Args:
        what: is wanted, in words, such as `v5litepod-16 (spot)`.
    """
    said = _shortened(trouble.words)
    of = f" of {what}" if what else ""
    if trouble.is_rate_limit:
        return RateLimited(f"too many calls to Google Cloud: {said}")
    if trouble.is_quota:
        named = f" {trouble.quota}" if trouble.quota else ""  # first: whoever is told shortens what follows
        return QuotaExceeded(f"quota{named} is used up in {zone}: {said}", trouble.quota_scope(zone))
    if trouble.is_stock_out or trouble.is_taken_back:
        return StockOut(f"{zone} is out{of}: {said}")
    if trouble.is_busy:
        return Unavailable(f"{zone} is busy with it: {said}")
    if trouble.code == Code.UNAUTHENTICATED:
        return Unavailable(f"Google Cloud does not accept the credentials: {said}")
    if trouble.code == Code.PERMISSION_DENIED:
        return BadConfig(f"not allowed in {zone}: {said}; see the roles in docs/gcp.md")
    if trouble.code == Code.RESOURCE_EXHAUSTED:
        return StockOut(f"{zone} is out{of}: {said}")
    if trouble.code in _NO_ANSWER:
        return Unavailable(f"no answer from Google Cloud for {zone}: {said}")
    return BadConfig(f"Google Cloud does not take the request for {zone}: {said}")


def later(trouble: Trouble, zone: str) -> RateLimited | Unavailable:
    """What the trouble means for one who looks or deletes, and has nothing else to do than to ask again."""
    error = verdict(trouble, zone)
    if isinstance(error, RateLimited | Unavailable):
        return error
    if isinstance(error, Refused) and trouble.code == Code.RESOURCE_EXHAUSTED:
        return RateLimited(f"too many calls to Google Cloud: {_shortened(trouble.words)}")
    return Unavailable(str(error))


# -- What they say -------------------------------------------------------------------------------------------------------------


def trouble_of(error: Exception) -> Trouble:
    """What an exception of a call says; the call's own deadline, and a broken connection, are no answer."""
    if isinstance(error, exceptions.GoogleAPICallError):
        return _of_call(error)
    if isinstance(error, GoogleAuthError):
        return Trouble(code=Code.UNAUTHENTICATED, words=str(error) or type(error).__name__)
    return Trouble(code=Code.UNAVAILABLE, words=str(error) or type(error).__name__)


def trouble_of_status(status: Status) -> Trouble:
    """What a long-running operation of the TPU API, or a failed queued resource, says."""
    details = [unpacked for each in status.details if (unpacked := _unpacked(each)) is not None]
    return _with_details(status.code, status.message, details)


def trouble_of_operation(operation: compute_v1.Operation) -> Trouble | None:
    """What a done operation of Compute says; None: it went well."""
    errors = list(operation.error.errors)
    if not errors and operation.http_error_status_code < 400:
        return None
    quotas = [each.error_details for each in errors]
    named = [detail.quota_info.metric_name or detail.quota_info.limit_name for details in quotas for detail in details]
    words = "; ".join(each.message for each in errors if each.message) or operation.http_error_message
    reasons = [each.code for each in errors if each.code]
    code = _OF_HTTP.get(operation.http_error_status_code, Code.UNKNOWN)
    if reasons and not operation.http_error_status_code:
        code = next((_OF_OPERATION[each] for each in reasons if each in _OF_OPERATION), Code.INVALID_ARGUMENT)
    return Trouble(
        code=code,
        words=words,
        reasons=frozenset(reasons),
        quota=next((name for name in named if name), ""),
    )


def _of_call(error: exceptions.GoogleAPICallError) -> Trouble:
    status = error.grpc_status_code
    code = Code.Value(status.name) if status is not None else _OF_HTTP.get(error.code or 0, Code.UNKNOWN)
    trouble = _with_details(code, str(error.message), [each for each in error.details if not isinstance(each, dict)])
    reasons = set(trouble.reasons)
    # Compute answers in JSON: a list of errors with reasons, and details as dictionaries.
    for each in (*error.errors, *error.details):
        if isinstance(each, dict):
            reasons.add(str(each.get("reason", "")))
    if error.reason:
        reasons.add(str(error.reason))
    headers = getattr(error.response, "headers", None)
    if headers is not None and error.code == 429:
        reasons.add("rateLimitExceeded")  # HTTP has no other meaning for it
    asked = (headers or {}).get("Retry-After", "")
    told = error.metadata or {}
    consumers = {str(told.get(key, "")).removeprefix("projects/") for key in ("consumer", "containerInfo")}
    return trouble.model_copy(
        update={
            "reasons": frozenset(reasons - {""}),
            "consumers": frozenset((consumers | set(_PROJECT_WORDS.findall(trouble.words))) - {""}),
            "retry_after": float(asked) if asked.isdecimal() else trouble.retry_after,
        }
    )


def _with_details(code: int, words: str, details: Iterable[Any]) -> Trouble:
    reasons: set[str] = set()
    quota, retry_after = "", None
    for detail in details:
        if isinstance(detail, error_details_pb2.QuotaFailure):
            reasons.add("QuotaFailure")
            said = [each.description or each.subject for each in detail.violations]
            quota = _quota_name(" ".join((words, *said)))
            words = words if any(each in words for each in said) else " ".join((words, *said)).strip()
        elif isinstance(detail, error_details_pb2.ErrorInfo):
            reasons.add(detail.reason)
            quota = quota or detail.metadata.get("quota_metric", "")
        elif isinstance(detail, error_details_pb2.RetryInfo):
            retry_after = detail.retry_delay.seconds + detail.retry_delay.nanos / 1e9
    return Trouble(code=code, words=words, reasons=frozenset(reasons), quota=quota or _quota_name(words), retry_after=retry_after)


def _unpacked(packed: Any) -> Any:
    for kind in (error_details_pb2.QuotaFailure, error_details_pb2.ErrorInfo, error_details_pb2.RetryInfo):
        if packed.Is(kind.DESCRIPTOR):
            message = kind()
            packed.Unpack(message)
            return message
    return None


def _quota_name(words: str) -> str:
    found = re.search(r"[Qq]uota(?: metric)? '([^']+)'", words)
    return found[1] if found else ""


def _shortened(words: str) -> str:
    """Google explains itself at length; the first sentences are what happened."""
    flat = " ".join(words.split())
    return flat if len(flat) <= 400 else f"{flat[:397]}..."
