"""The lifecycle of TPU nodes and queued resources."""

import base64
import secrets
from typing import Any

from tests.fakes.google import tpu_messages
from tests.fakes.google.cloud import Cloud
from tests.fakes.google.records import NODE, QUEUED, SPOT, Operation, Resource, key
from tests.fakes.google.refusals import Refusal
from tests.fakes.google.tpu_messages import QueuedResource

#: A queued resource is read in so many seconds.
READING = 0.05
#: Something is on its way that would not like to be disturbed.
_CREATED = frozenset({"CREATING", "STARTING", "RESTARTING"})


def create_node(cloud: Cloud, node: Resource) -> Operation:
    """A node that passed all checks."""
    cloud.add(node)
    operation = cloud.begin("tpu", "create", node)
    node.making = operation.name
    verdict = cloud.verdict("create", node)
    what = verdict.what if verdict else ""
    operation.lost, operation.stuck = what == "lost", what == "stuck"
    if verdict is not None and what == "error":
        node.note = f"{verdict.code}|{verdict.message or tpu_messages.stockout_words(node)}"
        node.doomed = verdict.code == 8
        cloud.schedule(node, cloud.knobs.stockout_time, "refused", operation.name)
    elif verdict is not None and what == "lingers":
        node.note = f"{verdict.code}|{verdict.message or tpu_messages.stockout_words(node)}"
        cloud.schedule(node, cloud.knobs.stockout_time, "lingers", operation.name)
    elif cloud.is_full(node):
        node.doomed, node.note = True, f"8|{tpu_messages.stockout_words(node)}"
        cloud.schedule(node, cloud.knobs.stockout_time, "refused", operation.name)
    elif what == "done_before_return":
        ready(cloud, node, operation.name)
    else:
        cloud.schedule(node, cloud.delay(cloud.knobs.boot_time, node), "ready", operation.name)
    cloud.touch(node)
    return operation


def refused(cloud: Cloud, node: Resource, operation: str) -> None:
    """The create comes to nothing: with code 3 because the node was preempted on the way, else
    there is no node any more.
    """
    code, message = node.note.split("|", 1)
    node.note = ""
    cloud.finish(operation, {"code": int(code), "message": message})
    if code == "3":
        end(cloud, node, "PREEMPTED")
    else:
        cloud.remove(node)


def lingers(cloud: Cloud, node: Resource, operation: str) -> None:
    """The create has come to nothing, and the node is shown as if it had not."""
    code, _, message = node.note.partition("|")
    node.note = node.making = ""
    cloud.finish(operation, {"code": int(code), "message": message})


def ready(cloud: Cloud, node: Resource, operation: str) -> None:
    """Its hosts are there."""
    if node.state not in _CREATED:
        return
    node.state, node.health, node.making = "READY", 1, ""
    node.endpoints = _endpoints(cloud, node)
    message = tpu_messages.node_message(node, health=False)
    cloud.finish(operation, response="node", message=message.SerializeToString())
    cloud.touch(node)
    cloud.power.on(node)
    if queued := owner(cloud, node):
        whole = all(each.state == "READY" for each in nodes_of(cloud, queued))
        if whole and queued.state == "PROVISIONING":
            queued.state = "ACTIVE"
            cloud.touch(queued)


def _endpoints(cloud: Cloud, node: Resource) -> list[list[str]]:
    wanted = cloud.knobs.endpoints.get(node.name, node.hosts)
    if isinstance(wanted, list):
        return [[each, "8.8.8.8" if each else ""] for each in wanted]
    return [cloud.address() for _ in range(wanted)]


def end(cloud: Cloud, node: Resource, state: str, notice: float | None = None) -> None:
    """It is not what it was: preempted, terminated, … What made it comes to nothing; quota is held
    until it is deleted.

    Args:
        notice: seconds from now until its hosts have no power; None: they keep it.
    """
    node.due = []
    if node.making:
        words = (
            f"Cloud TPU received a bad request. update is not supported while in state {state}"
            f" [EID: 0x{node.uid:016x}]"
        )
        cloud.finish(node.making, {"code": 3, "message": words})
        node.making = ""
    node.state = state
    cloud.touch(node)
    if notice is not None:
        cloud.power.notice(node)
        cloud.schedule(node, notice, "cut")
    if queued := owner(cloud, node):
        queued.state = "SUSPENDING"
        cloud.schedule(queued, notice if notice is not None else READING, "suspended")


def preempt(cloud: Cloud, node: Resource, notice: float) -> None:
    """Google takes it back."""
    end(cloud, node, "PREEMPTED", notice)


def cut(cloud: Cloud, node: Resource, operation: str) -> None:
    """Its hosts have no power any more."""
    cloud.power.off(node)


def delete_node(cloud: Cloud, node: Resource) -> Operation:
    """Whatever it is doing.

    Raises:
        Refusal: it is being deleted already.
    """
    if node.state == "DELETING":
        raise Refusal(
            "ABORTED", f"Resource '{node.path}' is being deleted; unable to queue the operation"
        )
    operation = cloud.begin("tpu", "delete", node)
    verdict = cloud.verdict("delete", node)
    what = verdict.what if verdict else ""
    operation.lost, operation.stuck = what == "lost", what == "stuck"
    if verdict is not None and what == "error":
        cloud.finish(
            operation.name, {"code": verdict.code, "message": verdict.message or "internal error"}
        )
        return operation
    if node.owner and not _is_deleting(owner(cloud, node)):
        cloud.complain(f"{node.path} was deleted without its queued resource")
    leave(cloud, node, operation.name)
    if what == "done_before_return":
        gone(cloud, node, operation.name)
    return operation


def leave(cloud: Cloud, node: Resource, operation: str = "") -> None:
    """It begins to go; its name stays taken until it has gone."""
    if node.making:
        cloud.finish(
            node.making,
            {"code": 1, "message": f"Operation was cancelled: '{node.path}' is being deleted"},
        )
    cloud.power.off(node)
    node.doomed = not node.fills()
    node.state, node.due, node.making, node.note = "DELETING", [], "", ""
    cloud.schedule(node, cloud.delay(cloud.knobs.delete_time, node), "gone", operation)


def gone(cloud: Cloud, node: Resource, operation: str) -> None:
    """Nothing is left. A queued resource whose node was taken from under it is suspended."""
    queued = owner(cloud, node)
    cloud.remove(node)
    cloud.finish(operation)
    if queued is not None and queued.state in ("ACTIVE", "PROVISIONING"):
        queued.state = "SUSPENDING"
        cloud.schedule(queued, READING, "suspended")


def create_queued(cloud: Cloud, queued: Resource) -> Operation:
    """A queued resource that passed all checks."""
    cloud.add(queued)
    operation = cloud.begin("tpu", "create", queued)
    queued.making = operation.name
    verdict = cloud.verdict("create", queued)
    what = verdict.what if verdict else ""
    operation.lost, operation.stuck = what == "lost", what == "stuck"
    if verdict is not None and what == "error":
        queued.making = ""
        queued.state, queued.note = "FAILED", verdict.message or tpu_messages.stockout_words(queued)
        cloud.finish(operation.name, {"code": verdict.code, "message": queued.note})
        cloud.touch(queued)
        return operation
    cloud.schedule(queued, READING, "accepted", operation.name)
    policy = QueuedResource.FromString(base64.b64decode(queued.body)).queueing_policy
    if policy.HasField("valid_until_duration"):
        cloud.schedule(queued, policy.valid_until_duration.ToTimedelta().total_seconds(), "expired")
    elif policy.HasField("valid_until_time"):
        cloud.schedule(
            queued, policy.valid_until_time.ToNanoseconds() / 1e9 - cloud.clock.now(), "expired"
        )
    return operation


def accepted(cloud: Cloud, queued: Resource, operation: str) -> None:
    """It is in the queue."""
    if queued.state == "CREATING":
        queued.state, queued.making = "WAITING_FOR_RESOURCES", ""
        cloud.finish(
            operation,
            response="queued",
            message=tpu_messages.queued_message(queued).SerializeToString(),
        )
        cloud.touch(queued)


def expired(cloud: Cloud, queued: Resource, operation: str) -> None:
    """It did not get anything in the time that it had; it stays until somebody deletes it."""
    if queued.state in ("CREATING", "WAITING_FOR_RESOURCES"):
        queued.state, queued.note = (
            "FAILED",
            "The queued resource was not provisioned before its valid_until time.",
        )
        cloud.touch(queued)


def serve(cloud: Cloud, queued: Resource) -> None:
    """Give it its nodes, if there is room for all of them."""
    policy = QueuedResource.FromString(base64.b64decode(queued.body)).queueing_policy
    wait = 0.0
    if policy.HasField("valid_after_duration"):
        wait = queued.created + policy.valid_after_duration.ToTimedelta().total_seconds()
    elif policy.HasField("valid_after_time"):
        wait = policy.valid_after_time.ToNanoseconds() / 1e9
    if wait > cloud.clock.now() or queued.zone in cloud.knobs.zones_down:
        return
    made = [_node_of(cloud, queued, name) for name in tpu_messages.node_names(queued)]
    for number, node in enumerate(made):
        if cloud.get(node.key) is not None or cloud.is_full(node):
            for each in made[:number]:
                cloud.resources.pop(each.key)
            return
        cloud.resources[node.key] = node
    queued.state = "PROVISIONING"
    for node in made:
        cloud.add(node)
        cloud.schedule(node, cloud.delay(cloud.knobs.boot_time, node), "ready")
    cloud.touch(queued)


def _node_of(cloud: Cloud, queued: Resource, name: str) -> Resource:
    message = QueuedResource.FromString(base64.b64decode(queued.body))
    spec = next(
        (each for each in message.tpu.node_spec if each.node_id == name), message.tpu.node_spec[0]
    )
    number = len(tpu_messages.node_names(queued))
    spec.node.scheduling_config.spot = queued.tier == SPOT
    spec.node.scheduling_config.reserved = bool(queued.reservation)
    return Resource(
        kind=NODE,
        project=queued.project,
        zone=queued.zone,
        name=name,
        uid=secrets.randbits(62),
        created=cloud.clock.now(),
        body=base64.b64encode(spec.node.SerializeToString()).decode(),
        state="CREATING",
        labels=dict(spec.node.labels),
        type=queued.type,
        family=queued.family,
        tier=queued.tier,
        units=queued.units // number,
        hosts=queued.hosts // number,
        reservation=queued.reservation,
        owner=queued.path,
    )


def suspended(cloud: Cloud, queued: Resource, operation: str) -> None:
    """Its nodes have gone; it holds its quota until somebody deletes it."""
    if queued.state == "SUSPENDING":
        for node in nodes_of(cloud, queued):
            cloud.remove(node)
        queued.state = "SUSPENDED"
        cloud.touch(queued)


def delete_queued(cloud: Cloud, queued: Resource, *, force: bool) -> Operation:
    """With force its nodes first.

    Raises:
        Refusal: it is being deleted already, or has nodes, and nobody said that they may go.
    """
    nodes = nodes_of(cloud, queued)
    if queued.state == "DELETING":
        raise Refusal(
            "ABORTED", f"Resource '{queued.path}' is being deleted; unable to queue the operation"
        )
    if not force and (
        nodes or queued.state not in ("ACCEPTED", "WAITING_FOR_RESOURCES", "FAILED", "SUSPENDED")
    ):
        words = (
            f"Queued resource '{queued.path}' is in state {queued.state} and has nodes: delete them"
            " first, or use force"
        )
        raise Refusal("FAILED_PRECONDITION", words)
    operation = cloud.begin("tpu", "delete", queued)
    verdict = cloud.verdict("delete", queued)
    what = verdict.what if verdict else ""
    operation.lost, operation.stuck = what == "lost", what == "stuck"
    if verdict is not None and what == "error":
        cloud.finish(
            operation.name, {"code": verdict.code, "message": verdict.message or "internal error"}
        )
        return operation
    if queued.making:
        cloud.finish(
            queued.making,
            {"code": 1, "message": f"Operation was cancelled: '{queued.path}' is being deleted"},
        )
    queued.state, queued.due, queued.making = "DELETING", [], ""
    for node in nodes:
        if node.state != "DELETING":
            leave(cloud, node)
    late = "mistyped" if what == "mistyped" else "queued gone"
    cloud.schedule(queued, cloud.delay(cloud.knobs.delete_time, queued), late, operation.name)
    return operation


def queued_gone(cloud: Cloud, queued: Resource, operation: str, *, mistyped: bool = False) -> None:
    """After its last node."""
    if nodes_of(cloud, queued):
        cloud.schedule(queued, READING, "mistyped" if mistyped else "queued gone", operation)
        return
    message = tpu_messages.queued_message(queued).SerializeToString()
    cloud.remove(queued)
    if mistyped:  # as v2alpha1 answers; clients of v2 do not expect it
        cloud.finish(operation, response="queued", message=message)
    else:
        cloud.finish(operation)


def mistyped_gone(cloud: Cloud, queued: Resource, operation: str) -> None:
    queued_gone(cloud, queued, operation, mistyped=True)


def owner(cloud: Cloud, node: Resource) -> Resource | None:
    """The queued resource that made it, if it is still there."""
    name = node.owner.rpartition("/")[2]
    return cloud.get(key(QUEUED, node.project, node.zone, name)) if name else None


def nodes_of(cloud: Cloud, queued: Resource) -> list[Resource]:
    """Its nodes that are there."""
    named = (
        cloud.get(key(NODE, queued.project, queued.zone, name))
        for name in tpu_messages.node_names(queued)
    )
    return [node for node in named if node is not None and node.owner == queued.path]


def _is_deleting(queued: Resource | None) -> bool:
    return queued is None or queued.state == "DELETING"


STEPS: dict[str, Any] = {
    "ready": ready,
    "refused": refused,
    "lingers": lingers,
    "cut": cut,
    "gone": gone,
    "accepted": accepted,
    "expired": expired,
    "suspended": suspended,
    "queued gone": queued_gone,
    "mistyped": mistyped_gone,
}
