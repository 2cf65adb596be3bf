"""Writes the rules of the policy: what the ids of a cluster are, and what each role may do with
them.

Temporal's servers enforce the rules and know Temporal's methods (`server/`). They know no name of
Iris; all names come from here.
"""

from collections.abc import Mapping
from typing import Any

from iris.model import names
from iris.model.job.arrays import KIND_PART

#: In a rule, stands for all kinds of ids or for all names.
ALL = "*"
_ANY = (ALL,)
#: Kinds of ids that are not ids of workflows: sessions beside a task, worker pools and hosts.
_SESSION, _POOL, _HOST = "session", "pool", "host"
_CONTROL, _PLANNER, _PATIENT = "control", "planner", "patient"
#: The kind of actions on the whole cluster, such as listing its jobs. Such an action has no id.
_CLUSTER = "cluster"
_JOB, _TASK, _SLICE, _SCHEDULE = (
    names.KIND_JOB,
    names.KIND_TASK,
    names.KIND_SLICE,
    names.KIND_SCHEDULE,
)
_SCHEDULER, _AUTOSCALER = names.KIND_SCHEDULER, names.KIND_AUTOSCALER
#: The kinds of workflows and schedules that belong to users.
_USERS = (_JOB, _TASK, KIND_PART, _SCHEDULE)
#: All kinds of workflows and schedules of a cluster.
_WORKFLOWS = (*_USERS, _SLICE, _SCHEDULER, _AUTOSCALER)
#: The activities on a task's host beside the task: commands, profiles, and connections to the
#: task's ports.
_SESSIONS = ("exec_task", "profile_task", "forward_ports")
#: The activities of a pool's workers.
_POOL_CALLS = ("run_calls", "retire")
#: The placeholder at the end of a name in a rule for the id of the host that sends the request.
_OWN_HOST = "{host}"
#: The signals with which a user changes a job.
_CHANGES = ("hold", "release", "set_priority", "cancel_task")
#: The queries that every role of people may make, by kind of workflow. Their answers contain states
#: and reasons, but not the command, environment or other inputs of a job.
_STATES: Mapping[str, tuple[str, ...]] = {
    _JOB: ("status", "attempts"),
    _TASK: ("status", "own_status", "attempts"),
    _SLICE: ("status",),
    _SCHEDULER: (
        "explain",
        "forecast",
        "never",
        "snapshot",
        "totals",
        "queue",
        "holdings",
        "uses",
        "quotas",
    ),
    _AUTOSCALER: ("status",),
}

_Grants = dict[str, dict[str, tuple[str, ...]]]

_SEE: _Grants = {
    "query": dict(_STATES),
    "read": dict.fromkeys(_WORKFLOWS, _ANY),
    "list": {_CLUSTER: _ANY},
}
_OWN: _Grants = {
    "start": {_JOB: (names.WORKFLOW_TYPES[_JOB],)},
    "schedule": {_SCHEDULE: (names.WORKFLOW_TYPES[_SCHEDULE],)},
    "activity": {_SESSION: _SESSIONS, _POOL: _POOL_CALLS},
    "signal": {_JOB: (*_CHANGES, "endpoint_changed")},
    "query": {
        _JOB: ("status", "attempts", "endpoints"),
        _TASK: ("status", "own_status", "attempts"),
        KIND_PART: ("status",),
    },
    "cancel": dict.fromkeys(_USERS, _ANY),
    "terminate": dict.fromkeys(_USERS, _ANY),
    "inputs": dict.fromkeys((*_USERS, _SESSION, _POOL), _ANY),
    "poll": {_POOL: _ANY},
}
_OPERATE: _Grants = {
    "activity": {_SESSION: _SESSIONS},
    "signal": {
        _JOB: _CHANGES,
        _SLICE: ("drain",),
        _SCHEDULER: ("deliver",),
        _AUTOSCALER: ("pause", "resume", "configure", "close_down"),
    },
    "update": {_SCHEDULER: ("exchange",)},
    "query": {ALL: _ANY},
    "cancel": dict.fromkeys(_WORKFLOWS, _ANY),
    "terminate": dict.fromkeys(_WORKFLOWS, _ANY),
    "schedule": {_SCHEDULE: (names.WORKFLOW_TYPES[_SCHEDULE],)},
    "read": dict.fromkeys(_WORKFLOWS, _ANY),
    "inputs": dict.fromkeys((*_WORKFLOWS, _SESSION), _ANY),
    "list": {_CLUSTER: _ANY},
}
_SERVE: _Grants = {
    "start": {_SLICE: (names.WORKFLOW_TYPES[_SLICE],)},
    "signal": {
        _JOB: ("task_progress",),
        _TASK: ("task_progress",),
        _SLICE: ("host_ready", "host_lost"),
    },
    "update": {_JOB: ("start_together",)},
    "query": {_SLICE: ("status",)},
    "read": {_SLICE: _ANY},
    "poll": {_HOST: _ANY},
}

_TELL: _Grants = {
    "signal": {_SCHEDULER: (names.vacate_signal(_OWN_HOST),)},
    "list": {_CLUSTER: _ANY},
}


def rules(cluster: str) -> dict[str, Any]:
    """Returns the rules of a cluster for its policy."""
    return {
        "kinds": _kinds(cluster),
        "roles": {
            "viewer": {"any": _SEE},
            "user": {"any": _SEE, "own": _OWN},
            # A program of a job, which acts on this job and its child jobs.
            "job": {"any": _SEE, "own": _OWN},
            "operator": {"any": _OPERATE, "own": _OWN},
            "host": {"any": _TELL, "own": _SERVE},
            "control-plane": {"any": {ALL: {ALL: _ANY}}},
        },
        "queues": {
            _JOB: _CONTROL,
            _SCHEDULE: _CONTROL,
            _SLICE: _CONTROL,
            _SESSION: _HOST,
            _POOL: _POOL,
        },
        "attributes": {
            "fixed": {names.SA_CLUSTER: cluster},
            "kind": names.SA_KIND,
            "user": names.SA_USER,
            "parent": names.SA_PARENT,
            "free": [
                names.SA_STATE,
                names.SA_GROUP,
                names.SA_PRIORITY,
                names.SA_TAGS,
            ],
        },
        "public_memo": [
            names.MEMO_STORE,
            names.MEMO_UI,
            names.MEMO_DASHBOARD,
            names.MEMO_VERSION,
            names.MEMO_TASKS,
            names.MEMO_DEVICE,
            names.MEMO_REASON,
            names.MEMO_PARENT,
            names.MEMO_WHEN,
            names.MEMO_TIME_ZONE,
        ],
    }


def _kinds(cluster: str) -> dict[str, dict[str, Any]]:
    """Returns what an id of each kind is: one id, or all with a prefix."""
    owned = {"owned": True}
    return {
        _JOB: {"prefix": names.job_workflow(cluster, ""), **owned},
        _TASK: {"prefix": names.task_workflow(cluster, ""), **owned},
        KIND_PART: {"prefix": f"{cluster}/{KIND_PART}/", **owned},
        _SCHEDULE: {"prefix": names.schedule_id(cluster, ""), "timed": True, **owned},
        _SESSION: {"prefix": names.sessions(cluster), **owned},
        _POOL: {"prefix": names.pools(cluster), **owned},
        _SLICE: {"prefix": names.slice_workflow(cluster, "")},
        _HOST: {"prefix": names.host_queue(cluster, "")},
        _SCHEDULER: {"id": names.scheduler_workflow(cluster)},
        _AUTOSCALER: {"id": names.autoscaler_workflow(cluster)},
        _CONTROL: {"id": names.control_queue(cluster)},
        _PLANNER: {"id": names.planner_queue(cluster)},
        _PATIENT: {"id": names.patient_queue(cluster)},
    }
