"""Builds the markdown that Temporal's Web UI shows of a workflow: its kind, state, reason, hosts and logs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from iris.model.bounds import cut
from iris.model.hosts import Host
from iris.model.jobs import JobSpec, JobStatus, TaskStatus
from iris.model.scaling import Action, GroupStatus
from iris.model.slices import SliceStatus
from iris.model.units import MIB

if TYPE_CHECKING:  # a client, which needs `summary` only, has no ledger
    from iris.scheduling.ledger import Ledger
    from iris.scheduling.ledger_size import LedgerSize

#: The most rows of a table; a job's other tasks are counted.
SHOWN = 20


def summary(spec: JobSpec) -> str:
    """Returns one line for lists: the command, shortened."""
    text = " ".join(spec.command).replace("\n", " ")
    times = f"{spec.replicas} x " if spec.replicas > 1 else ""
    return times + (text if len(text) <= 120 else f"{text[:117]}...")


def job_details(spec: JobSpec, status: JobStatus) -> str:
    """Returns the state of a job and of its first tasks."""
    lines = [f"**{status.state}** {status.reason}".strip(), ""]
    lines.append(f"Job `{spec.id}`: `{summary(spec)}`, each task with {spec.resources}.")
    lines += ["", "| task | state | host | attempt | exit code | reason |", "|---|---|---|---|---|---|"]
    lines += [task_row(task) for task in status.tasks[:SHOWN]]
    if len(status.tasks) > SHOWN:
        lines.append(f"\n… and {len(status.tasks) - SHOWN} more.")
    lines += ["", f"Logs: `iris logs {spec.id}`"]
    return "\n".join(lines)


def task_details(spec: JobSpec, task: TaskStatus) -> str:
    """Returns the state of one task of a job of several."""
    lines = [f"**{task.state}** {task.reason}".strip(), "", f"Task {task.index} of {spec.replicas} of job `{spec.id}`."]
    if task.host:
        lines.append(f"Attempt {task.attempt} on host `{task.host}`.")
    lines += ["", f"Logs: `iris logs {spec.id} --task {task.index}`"]
    return "\n".join(lines)


def task_row(task: TaskStatus) -> str:
    exit_code = "" if task.exit_code is None else task.exit_code
    return f"| {task.index} | {task.state} | {task.host or ''} | {task.attempt or ''} | {exit_code} | {task.reason} |"


def slice_details(status: SliceStatus) -> str:
    """Returns the state of a slice, its hosts, and the steps that led to it."""
    lines = [f"**{status.state}** {status.reason}".strip(), ""]
    if status.facts is not None:
        lines += [f"A slice of scale group `{status.facts.group}` in {status.facts.zone}, of {status.size} host(s).", ""]
    lines += host_rows(status.hosts)
    if status.steps:
        lines += ["", "| when | state | reason |", "|---|---|---|"]
        lines += [f"| {step.at:%Y-%m-%d %H:%M:%S} | {step.state} | {step.reason} |" for step in status.steps]
    return "\n".join(lines)


def scheduler_details(ledger: "Ledger", size: "LedgerSize") -> str:
    """Returns the numbers of the ledger, and what keeps gangs from hosts."""
    lines = [f"**{len(ledger.hosts)}** hosts, **{len(ledger.live)}** gangs placed, **{len(ledger.waiting)}** waiting"]
    if len(ledger.held):
        lines.append(f"{len(ledger.held)} held by their users")
    if size.full:
        lines.append(f"**The ledger is full**: {size.bytes / MIB:.2f} MiB; new requests are refused")
    if ledger.paused is not None:
        lines.append(f"**PAUSED** {cut(ledger.paused)}")
    lines += [f"Scale group {group} is paused: {cut(reason)}" for group, reason in ledger.paused_groups.items()]
    lines += [f"- host {host}: {cut(str(closure))}" for host, closure in list(ledger.closed.items())[:SHOWN]]
    return "\n\n".join(lines)


def autoscaler_details(groups: Sequence[GroupStatus], actions: Sequence[Action], notes: Sequence[str]) -> str:
    """Returns the slices, demand, target and reason of each scale group, and then the last actions."""
    lines = [
        "Observes the hosts and decides how many slices there are.",
        "",
        *([f"- {note}" for note in notes] or ["All hosts report."]),
    ]
    if groups:
        lines += ["", "| scale group | availability | slices | demand | target | reason |", "|---|---|---|---|---|---|"]
        lines += [
            f"| {each.group} | {each.availability} | {counts(each)} | {each.demand} | {each.target} | {each.why} |"
            for each in groups[:SHOWN]
        ]
    if actions:
        lines += ["", "| when | scale group | action | slice | reason |", "|---|---|---|---|---|"]
        lines += [
            f"| {each.at:%Y-%m-%d %H:%M:%S} | {each.group} | {each.what} | {each.slice_id} | {each.reason} |"
            for each in reversed(actions[-SHOWN:])
        ]
    return "\n".join(lines)


def counts(status: GroupStatus) -> str:
    """Returns the number of slices by state, such as `2 READY, 1 PROVISIONING`."""
    return ", ".join(f"{count} {state}" for state, count in status.counts.items() if count) or "none"


def host_rows(hosts: Sequence[Host]) -> list[str]:
    if not hosts:
        return ["No host has reported yet."]
    rows = [f"| {host.id} | {host.resources} | {host.incarnation} |" for host in hosts]
    return ["| host | offers | incarnation |", "|---|---|---|", *rows]
