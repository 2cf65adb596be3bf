"""Google's errors, with their original messages and details, and the `PlatformError` for each."""

import io
import json
from typing import Any

import grpc
import pytest
import requests
from google.api_core import exceptions
from google.auth.exceptions import RefreshError
from google.protobuf.any_pb2 import Any as Packed
from google.rpc import error_details_pb2
from google.rpc.status_pb2 import Status

from iris.model.slice.provisioning import SliceFault
from iris.platforms.base import (
    BadConfig,
    PlatformError,
    QuotaExceeded,
    RateLimited,
    StockOut,
    Unavailable,
)
from iris.platforms.gcp.errors import (
    ApiError,
    api_error_of,
    api_error_of_operation,
    api_error_of_status,
    platform_error,
    retryable_error,
)
from iris.platforms.gcp.lean_compute import compute_v1

ZONE = "us-west4-a"
NO_CAPACITY = (
    'There is no more capacity in the zone "us-west4-a"; you can try in another zone where Cloud'
    " TPU Nodes are offered (see https://cloud.google.com/tpu/docs/regions) [EID: 0x1234]"
)
TPU_QUOTA = (
    "Quota 'TPUV5sPreemptibleLitepodPerProjectPerRegionForTPUAPI' exhausted. Limit 10000 in region"
    " us-west4"
)
QUOTA_FAILURE = error_details_pb2.QuotaFailure(
    violations=[{"subject": "project:1", "description": TPU_QUOTA}]
)
#: A disk and a machine.
INCOMPATIBLE = "[pd-balanced, c4-standard-16] features are not compatible for creating instance."
NO_QUOTA_PROJECT = (
    "Your application is authenticating by using local Application Default Credentials. The"
    " tpu.googleapis.com API requires a quota project, which is not set by default."
)
DISABLED_INFO = error_details_pb2.ErrorInfo(reason="SERVICE_DISABLED", domain="googleapis.com")
RATE_INFO = error_details_pb2.ErrorInfo(reason="RATE_LIMIT_EXCEEDED", domain="googleapis.com")


def by_grpc(kind: type[exceptions.GoogleAPICallError], words: str, *details: Any) -> ApiError:
    """What the TPU client raises."""
    info = next((each for each in details if isinstance(each, error_details_pb2.ErrorInfo)), None)
    return api_error_of(kind(words, errors=(grpc.RpcError(),), details=details, error_info=info))


def by_http(status: int, reason: str, words: str, **headers: str) -> ApiError:
    """What Compute's client raises for such a response."""
    response = requests.Response()
    response.status_code = status
    response.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
    body = {"error": {"code": status, "message": words, "errors": [{"reason": reason}]}}
    response.raw = io.BytesIO(json.dumps(body).encode())
    response.request = requests.Request("POST", "https://compute.googleapis.com/").prepare()
    return api_error_of(exceptions.from_http_response(response))


def by_operation(code: str, status: int, words: str, metric: str = "") -> ApiError:
    """What is in Compute's operation."""
    error = {
        "code": code,
        "message": words,
        "error_details": [{"quota_info": {"metric_name": metric}}] if metric else [],
    }
    found = api_error_of_operation(
        compute_v1.Operation(http_error_status_code=status, error={"errors": [error]})
    )
    assert found is not None
    return found


def by_status(code: int, words: str, *details: Any) -> ApiError:
    """What is in an operation of the TPU API."""
    packed = [Packed() for _ in details]
    for each, detail in zip(packed, details, strict=True):
        each.Pack(detail)
    return api_error_of_status(Status(code=code, message=words, details=packed))


E = exceptions
REFUSALS: list[tuple[str, ApiError, type[PlatformError]]] = [
    ("tpu, no capacity", by_status(8, NO_CAPACITY), StockOut),
    (
        "tpu, reserved",
        by_status(8, "Insufficient reserved capacity. Contact customer support"),
        StockOut,
    ),
    (
        "tpu, reserved, as precondition",
        by_status(9, "Insufficient reserved capacity. Contact customer support"),
        StockOut,
    ),
    ("tpu, no words", by_status(8, ""), StockOut),
    (
        "tpu, taken back",
        by_status(
            3, "Cloud TPU received a bad request. update is not supported while in state PREEMPTED"
        ),
        StockOut,
    ),
    ("tpu, quota, in the operation", by_status(8, TPU_QUOTA, QUOTA_FAILURE), QuotaExceeded),
    (
        "tpu, quota",
        by_grpc(E.ResourceExhausted, "Quota limit reached", QUOTA_FAILURE),
        QuotaExceeded,
    ),
    ("tpu, quota without details", by_grpc(E.ResourceExhausted, TPU_QUOTA), QuotaExceeded),
    (
        "tpu, rate",
        by_grpc(E.ResourceExhausted, "Quota exceeded for quota metric 'Requests'", RATE_INFO),
        RateLimited,
    ),
    (
        "tpu, rate without details",
        by_grpc(
            E.ResourceExhausted,
            "Quota exceeded for quota metric 'Read requests' and limit 'Read requests per minute'"
            " of service 'tpu…'",
        ),
        RateLimited,
    ),
    ("tpu, field", by_grpc(E.InvalidArgument, "Invalid runtime version"), BadConfig),
    (
        "tpu, rights",
        by_grpc(E.PermissionDenied, "Permission 'tpu.nodes.create' denied on resource"),
        BadConfig,
    ),
    ("tpu, type", by_grpc(E.NotFound, "Accelerator type v9-8 was not found"), BadConfig),
    (
        "tpu, precondition",
        by_grpc(E.FailedPrecondition, "the network has no subnetwork in the region"),
        BadConfig,
    ),
    ("tpu, busy", by_grpc(E.Aborted, "unable to queue the operation"), Unavailable),
    ("tpu, internal", by_grpc(E.InternalServerError, "internal"), Unavailable),
    ("tpu, away", by_grpc(E.ServiceUnavailable, "failed to connect to all addresses"), Unavailable),
    ("tpu, late", by_grpc(E.DeadlineExceeded, "Deadline Exceeded"), Unavailable),
    (
        "tpu, credentials",
        by_grpc(E.Unauthenticated, "Request had invalid authentication credentials"),
        Unavailable,
    ),
    (
        "compute, no capacity",
        by_operation("ZONE_RESOURCE_POOL_EXHAUSTED", 503, "does not have enough resources"),
        StockOut,
    ),
    (
        "compute, details",
        by_operation("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", 503, "The zone is out"),
        StockOut,
    ),
    ("compute, bulk", by_http(503, "insufficientCapacity", "Not enough machines"), StockOut),
    (
        "compute, taken back",
        by_operation("UNSUPPORTED_OPERATION", 400, "Instance is preempted"),
        StockOut,
    ),
    (
        "compute, not started",
        by_operation("", 400, "Instance failed to start due to preemption."),
        StockOut,
    ),
    ("compute, parts", by_operation("UNSUPPORTED_OPERATION", 400, INCOMPATIBLE), BadConfig),
    (
        "compute, spot",
        by_operation("UNSUPPORTED_OPERATION", 400, "Not supported for preemptible instances"),
        BadConfig,
    ),
    (
        "compute, without status",
        by_operation("INVALID_FIELD_VALUE", 0, "Invalid value for field 'x'"),
        BadConfig,
    ),
    (
        "compute, parts, without status",
        by_operation("UNSUPPORTED_OPERATION", 0, INCOMPATIBLE),
        BadConfig,
    ),
    (
        "compute, stock, without status",
        by_operation("ZONE_RESOURCE_POOL_EXHAUSTED", 0, ""),
        StockOut,
    ),
    (
        "compute, quota, without status",
        by_operation("QUOTA_EXCEEDED", 0, "Quota exceeded."),
        QuotaExceeded,
    ),
    (
        "compute, internal, without status",
        by_operation("INTERNAL_ERROR", 0, "Internal error. Please try again."),
        Unavailable,
    ),
    ("compute, no words at all", by_operation("", 0, ""), Unavailable),
    (
        "compute, quota, later",
        by_operation("QUOTA_EXCEEDED", 403, "Quota exceeded.", "compute/gpus"),
        QuotaExceeded,
    ),
    (
        "compute, quota",
        by_http(403, "quotaExceeded", "Quota 'GPUS_ALL_REGIONS' exceeded. Limit: 0.0 globally."),
        QuotaExceeded,
    ),
    ("compute, rate as 403", by_http(403, "rateLimitExceeded", "Rate Limit Exceeded"), RateLimited),
    ("compute, rate as 429", by_http(429, "", "Slow down"), RateLimited),
    (
        "compute, operations",
        by_operation("RESOURCE_OPERATION_RATE_EXCEEDED", 429, "too often"),
        RateLimited,
    ),
    ("tpu, quota project", by_grpc(E.PermissionDenied, NO_QUOTA_PROJECT, DISABLED_INFO), BadConfig),
    ("compute, quota project", by_http(403, "forbidden", NO_QUOTA_PROJECT), BadConfig),
    (
        "compute, rights on quotas",
        by_http(403, "forbidden", "Permission 'compute.quotas.get' denied; see quotas"),
        BadConfig,
    ),
    (
        "compute, rights",
        by_http(403, "forbidden", "Required 'compute.instances.create' permission"),
        BadConfig,
    ),
    (
        "compute, field",
        by_http(400, "invalid", "Invalid value for field 'resource.name'"),
        BadConfig,
    ),
    (
        "compute, network",
        by_http(404, "notFound", "The resource 'projects/p/global/networks/x' was not found"),
        BadConfig,
    ),
    ("compute, busy", by_http(400, "resourceNotReady", "The resource is not ready"), Unavailable),
    (
        "compute, busy, later",
        by_operation("RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", 400, "in use"),
        Unavailable,
    ),
    ("compute, away", by_http(503, "backendError", "Try again"), Unavailable),
    ("compute, gateway", by_http(502, "", "Bad Gateway"), Unavailable),
    ("compute, credentials", by_http(401, "authError", "Invalid Credentials"), Unavailable),
    ("connection", api_error_of(requests.exceptions.ReadTimeout("read timed out")), Unavailable),
    ("refresh", api_error_of(RefreshError("Reauthentication is needed")), Unavailable),
    ("gave up", api_error_of(exceptions.RetryError("timeout", cause=None)), Unavailable),
]


@pytest.mark.parametrize(
    ("api_error", "kind"), [pytest.param(*each[1:], id=each[0]) for each in REFUSALS]
)
def test_each_error_has_its_platform_error(api_error: ApiError, kind: type[PlatformError]) -> None:
    """A stock-out read as an outage is retried for ever, and an outage read as a stock-out closes a
    zone.
    """
    assert type(platform_error(api_error, ZONE)) is kind


def test_reads_and_deletes_get_only_retryable_errors() -> None:
    """A delete has no alternative: machines that are not deleted cost money."""
    for name, api_error, _ in REFUSALS:
        assert type(retryable_error(api_error, ZONE)) in (RateLimited, Unavailable), name


def test_a_refusal_names_the_zone_the_quota_and_the_machines() -> None:
    """Waiting users read it; Google's message has the numbers."""
    quota = str(
        platform_error(by_grpc(E.ResourceExhausted, "Quota limit reached", QUOTA_FAILURE), ZONE)
    )
    metric = str(
        platform_error(by_operation("QUOTA_EXCEEDED", 403, "Quota exceeded.", "compute/gpus"), ZONE)
    )
    stock = str(platform_error(by_status(8, NO_CAPACITY), ZONE, "v5litepod-16 (spot)"))

    assert ZONE in quota
    assert "TPUV5sPreemptibleLitepodPerProjectPerRegionForTPUAPI" in quota
    assert "Limit 10000 in region us-west4" in quota
    assert "compute/gpus" in metric
    assert stock.startswith("us-west4-a is out of v5litepod-16 (spot): There is no more capacity")


def test_the_requested_delay_is_read() -> None:
    """An earlier call makes the overload worse."""
    retry = error_details_pb2.RetryInfo(retry_delay={"seconds": 7})

    assert by_http(429, "rateLimitExceeded", "Slow down", Retry_After="30").retry_after == 30
    assert by_grpc(E.ResourceExhausted, "Too many requests", RATE_INFO, retry).retry_after == 7
    assert by_http(429, "rateLimitExceeded", "Slow down").retry_after is None


def test_existing_and_missing_resources_are_recognised() -> None:
    """A create adopts the existing one, and a delete has succeeded."""
    assert by_grpc(E.AlreadyExists, "Resource already exists").already_exists
    assert by_http(409, "alreadyExists", "The resource already exists").already_exists
    assert by_operation(
        "RESOURCE_ALREADY_EXISTS", 409, "The resource already exists"
    ).already_exists
    assert not by_grpc(E.Aborted, "unable to queue the operation").already_exists
    assert by_grpc(E.NotFound, "Resource 'x' was not found").is_absence
    assert by_http(404, "notFound", "The resource was not found").is_absence


def test_credentials_without_a_quota_project_do_not_make_a_project_empty() -> None:
    """A cleanup would report that nothing is left, while machines cost money."""
    assert by_grpc(
        E.PermissionDenied, "The service is disabled in project 1", DISABLED_INFO
    ).is_service_disabled
    assert not by_grpc(E.PermissionDenied, NO_QUOTA_PROJECT, DISABLED_INFO).is_service_disabled


def test_a_service_is_disabled_in_the_project_that_the_error_names() -> None:
    """In the message, or in the details; a project number may be any project's."""
    words = (
        "Cloud TPU API has not been used in project {} before or it is disabled. Enable it by"
        " visiting …?project={}"
    )
    info = error_details_pb2.ErrorInfo(
        reason="SERVICE_DISABLED",
        metadata={"consumer": "projects/7", "containerInfo": "my-project"},
    )
    by_words, by_number = (
        by_grpc(E.PermissionDenied, words.format(each, each), DISABLED_INFO)
        for each in ("my-project", "7")
    )
    by_details = by_grpc(E.PermissionDenied, words.format(7, 7), info)
    by_reason = by_http(
        403,
        "accessNotConfigured",
        "Compute Engine API has not been used in project my-project before",
    )

    assert [
        each.is_disabled_in("my-project") for each in (by_words, by_details, by_reason, by_number)
    ] == [True] * 3 + [False]
    assert not by_words.is_disabled_in("my-project-2")
    assert not by_words.is_disabled_in("my")


def test_a_successful_operation_has_no_error() -> None:
    """Done is not the same as failed."""
    assert (
        api_error_of_operation(compute_v1.Operation(status=compute_v1.Operation.Status.DONE))
        is None
    )


def test_each_refusal_has_a_fault_for_the_autoscaler() -> None:
    """It avoids a zone, a quota or a group, each in its own way."""
    faults = {
        type(error): error.fault for error in (StockOut(""), QuotaExceeded(""), BadConfig(""))
    }

    assert faults == {
        StockOut: SliceFault.STOCK_OUT,
        QuotaExceeded: SliceFault.QUOTA,
        BadConfig: SliceFault.BAD_CONFIG,
    }
