"""The errors of both APIs."""

from dataclasses import dataclass

#: (Google's name, number in gRPC, status in HTTP, reason in Compute).
_STATUSES = (
    ("CANCELLED", 1, 499, "cancelled"),
    ("UNKNOWN", 2, 500, "unknown"),
    ("INVALID_ARGUMENT", 3, 400, "invalid"),
    ("DEADLINE_EXCEEDED", 4, 504, "deadlineExceeded"),
    ("NOT_FOUND", 5, 404, "notFound"),
    ("ALREADY_EXISTS", 6, 409, "alreadyExists"),
    ("PERMISSION_DENIED", 7, 403, "forbidden"),
    ("RESOURCE_EXHAUSTED", 8, 429, "rateLimitExceeded"),
    ("FAILED_PRECONDITION", 9, 412, "conditionNotMet"),
    ("ABORTED", 10, 409, "resourceNotReady"),
    ("OUT_OF_RANGE", 11, 400, "outOfRange"),
    ("UNIMPLEMENTED", 12, 501, "notImplemented"),
    ("INTERNAL", 13, 500, "backendError"),
    ("UNAVAILABLE", 14, 503, "backendError"),
    ("UNAUTHENTICATED", 16, 401, "authError"),
)
_BY_NAME = {each[0]: each for each in _STATUSES}
#: An HTTP status means the first of its kind.
_BY_HTTP = {each[2]: each for each in reversed(_STATUSES)}


@dataclass
class Refusal(Exception):
    """The call is refused."""

    #: Google's name of it.
    status: str
    message: str
    #: Of the details, for TPU: `quota` or `rate`; for Compute: the error's reason.
    details: str = ""
    #: The HTTP status, where it is not the one that belongs to the name.
    http: int = 0
    retry_after: int = 0

    @property
    def code(self) -> int:
        """In gRPC."""
        return _BY_NAME[self.status][1]

    @property
    def http_status(self) -> int:
        return self.http or _BY_NAME[self.status][2]

    @property
    def reason(self) -> str:
        """In Compute."""
        return self.details or _BY_NAME[self.status][3]


def status_name(status: str | int) -> str:
    """Google's name, of the name itself or of an HTTP status."""
    if isinstance(status, int) or status.isdecimal():
        return _BY_HTTP[int(status)][0]
    return _BY_NAME[status][0]


def invalid(message: str) -> Refusal:
    return Refusal("INVALID_ARGUMENT", message)


def not_found(path: str) -> Refusal:
    """In the words of whichever API has such paths."""
    article = "The resource" if "/zones/" in path else "Resource"
    return Refusal("NOT_FOUND", f"{article} '{path}' was not found")
