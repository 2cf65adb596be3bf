"""The lifecycle of instances."""

import json
from typing import Any

from tests.fakes.google.cloud import Cloud
from tests.fakes.google.compute_messages import fingerprint
from tests.fakes.google.limits import quota_name
from tests.fakes.google.records import SPOT, Operation, Resource
from tests.fakes.google.refusals import Refusal

_RUNS = frozenset({"PROVISIONING", "STAGING", "RUNNING", "REPAIRING"})
#: Within an operation on labels or metadata, or one that is quick.
QUICK = 0.02


def insert(cloud: Cloud, instance: Resource) -> Operation:
    """An instance that passed all checks: what it may not have, or there is none of, the operation
    says.
    """
    words = cloud.quota_words(instance)
    cloud.add(instance)
    operation = cloud.begin("compute", "insert", instance)
    instance.making = operation.name
    verdict = cloud.verdict("insert", instance) or cloud.verdict("create", instance)
    what = verdict.what if verdict else ""
    operation.lost, operation.stuck = what == "lost", what == "stuck"
    if verdict is not None and what == "error":
        instance.note = json.dumps(
            {
                "error_code": verdict.message or "INTERNAL_ERROR",
                "http": verdict.code,
                "message": "refused",
            }
        )
    elif words:
        instance.note = json.dumps(_quota_error(cloud, instance, words))
    elif cloud.is_full(instance):
        instance.note = json.dumps(_stockout_error(instance))
    if instance.note:
        instance.doomed = True
        cloud.schedule(instance, cloud.knobs.stockout_time, "instance refused", operation.name)
    elif what == "done_before_return":
        running(cloud, instance, operation.name)
    else:
        _boot(cloud, instance, operation.name)
    cloud.touch(instance)
    return operation


def _boot(cloud: Cloud, instance: Resource, operation: str) -> None:
    seconds = cloud.delay(cloud.knobs.boot_time, instance)
    instance.state = "PROVISIONING"
    cloud.schedule(instance, None if seconds is None else seconds / 2, "staging")
    cloud.schedule(instance, seconds, "running", operation)


def _stockout_error(instance: Resource) -> dict[str, Any]:
    words = (
        f"The zone 'projects/{instance.project}/zones/{instance.zone}' does not have enough"
        " resources available to fulfill the request. '(resource type:compute)'. Try a different"
        " zone, or try again later."
    )
    return {"error_code": "ZONE_RESOURCE_POOL_EXHAUSTED", "http": 503, "message": words}


def _quota_error(cloud: Cloud, instance: Resource, words: str) -> dict[str, Any]:
    name = quota_name(instance, per_zone=False)
    region, limit = (
        instance.zone.rpartition("-")[0],
        float(words.partition("Limit ")[2].partition(" ")[0]),
    )
    info = {
        "metricName": f"compute.googleapis.com/{name.lower()}",
        "limitName": name.replace("_", "-") + "-per-project-region",
        "dimensions": {"region": region},
        "limit": limit,
    }
    message = f"Quota '{name}' exceeded.  Limit: {limit} in region {region}."
    more = {"errorDetails": [{"quotaInfo": info}]}
    return {"error_code": "QUOTA_EXCEEDED", "http": 403, "message": message, "more": more}


def refused(cloud: Cloud, instance: Resource, operation: str) -> None:
    """The operation says why; for a moment the instance is still to be seen."""
    cloud.finish(operation, json.loads(instance.note))
    instance.note, instance.state = "", "STOPPING"
    cloud.schedule(instance, QUICK, "instance gone")


def staging(cloud: Cloud, instance: Resource, operation: str) -> None:
    if instance.state == "PROVISIONING":
        instance.state = "STAGING"


def running(cloud: Cloud, instance: Resource, operation: str) -> None:
    if instance.state not in _RUNS:
        return
    instance.state, instance.making = "RUNNING", ""
    cloud.finish(operation)
    cloud.power.on(instance)


def preempt(cloud: Cloud, instance: Resource, notice: float) -> None:
    """Google takes it back: what is left is what its termination action says."""
    if instance.making:
        words = (
            f"Operation type [insert] failed with message \"Instance '{instance.name}' creation"
            ' failed: preempted"'
        )
        cloud.finish(
            instance.making, {"error_code": "UNSUPPORTED_OPERATION", "http": 400, "message": words}
        )
    instance.due, instance.making, instance.state = [], "", "STOPPING"
    cloud.power.notice(instance)
    action = (
        json.loads(instance.body).get("scheduling", {}).get("instanceTerminationAction", "STOP")
    )
    cloud.schedule(
        instance,
        notice,
        "instance gone" if action == "DELETE" and instance.tier == SPOT else "stopped",
    )
    instance.note = "Instance was preempted."


def delete(cloud: Cloud, instance: Resource) -> Operation:
    """Whatever it is doing; said twice it is two operations."""
    operation = cloud.begin("compute", "delete", instance)
    verdict = cloud.verdict("delete", instance)
    what = verdict.what if verdict else ""
    operation.lost, operation.stuck = what == "lost", what == "stuck"
    if verdict is not None and what == "error":
        error = {
            "error_code": verdict.message or "RESOURCE_NOT_READY",
            "http": verdict.code,
            "message": "refused",
        }
        cloud.finish(operation.name, error)
        return operation
    if instance.making:
        words = "The operation was cancelled: the instance is being deleted"
        cloud.finish(
            instance.making, {"error_code": "RESOURCE_NOT_READY", "http": 400, "message": words}
        )
    cloud.power.off(instance)
    instance.doomed = not instance.fills()
    # A delete that is said again goes on.
    begun = [each for each in instance.due if each[1] == "instance gone" and each[2]]
    instance.state, instance.due, instance.making = "STOPPING", begun, ""
    cloud.schedule(
        instance, cloud.delay(cloud.knobs.delete_time, instance), "instance gone", operation.name
    )
    return operation


def gone(cloud: Cloud, instance: Resource, operation: str) -> None:
    cloud.remove(instance)
    cloud.finish(operation)


def stop(cloud: Cloud, instance: Resource) -> Operation:
    operation = cloud.begin("compute", "stop", instance)
    cloud.power.off(instance)
    instance.due, instance.state = [], "STOPPING"
    cloud.schedule(
        instance, cloud.delay(cloud.knobs.delete_time, instance), "stopped", operation.name
    )
    return operation


def stopped(cloud: Cloud, instance: Resource, operation: str) -> None:
    cloud.power.off(instance)
    instance.state = "TERMINATED"
    cloud.finish(operation)


def start(cloud: Cloud, instance: Resource) -> Operation:
    """Raises:
    Refusal: it runs.
    """
    if instance.state == "STOPPING":
        raise Refusal(
            "ABORTED", f"The resource '{instance.path}' is not ready", "resourceNotReady", 400
        )
    operation = cloud.begin("compute", "start", instance)
    if instance.state == "RUNNING":
        cloud.finish(operation.name)
        return operation
    instance.note, instance.making = "", operation.name
    _boot(cloud, instance, operation.name)
    return operation


def reset(cloud: Cloud, instance: Resource) -> Operation:
    """The power goes and comes back: the startup script runs again."""
    if instance.state != "RUNNING":
        raise Refusal(
            "ABORTED", f"The resource '{instance.path}' is not ready", "resourceNotReady", 400
        )
    operation = cloud.begin("compute", "reset", instance)
    cloud.power.off(instance)
    cloud.schedule(instance, QUICK, "running", operation.name)
    return operation


def set_labels(cloud: Cloud, instance: Resource, labels: dict[str, str], print_: str) -> Operation:
    """Raises:
    Refusal: somebody else was quicker.
    """
    _check_fingerprint(instance, "labels", print_)
    if instance.foreign:
        cloud.complain(f"{instance.path} got labels, and is somebody else's")
    instance.labels, instance.version = labels, instance.version + 1
    return _quick(cloud, instance, "setLabels")


def set_metadata(cloud: Cloud, instance: Resource, metadata: dict[str, Any]) -> Operation:
    """Raises:
    Refusal: somebody else was quicker.
    """
    _check_fingerprint(instance, "metadata", metadata.get("fingerprint", ""))
    body = json.loads(instance.body)
    body["metadata"] = {"items": metadata.get("items", [])}
    instance.body, instance.version = json.dumps(body), instance.version + 1
    return _quick(cloud, instance, "setMetadata")


def _check_fingerprint(instance: Resource, what: str, given: str) -> None:
    if given != fingerprint(instance, what):
        raise Refusal(
            "FAILED_PRECONDITION",
            f"{what.capitalize()} fingerprint either invalid or resource {what} have changed",
        )


def _quick(cloud: Cloud, instance: Resource, verb: str) -> Operation:
    operation = cloud.begin("compute", verb, instance)
    cloud.schedule(instance, QUICK, "instance done", operation.name)
    return operation


def done(cloud: Cloud, instance: Resource, operation: str) -> None:
    cloud.finish(operation)


STEPS: dict[str, Any] = {
    "staging": staging,
    "running": running,
    "instance refused": refused,
    "instance gone": gone,
    "stopped": stopped,
    "instance done": done,
}
