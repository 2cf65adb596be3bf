"""Builds the Markdown that Temporal's Web UI shows for a workflow: its kind, state, reason, hosts
and logs.

The Web UI does not render tables: it joins the rows into one paragraph. So everything is a list. It
reads dollar signs as mathematics, so all text from a user, a host or a provider is escaped, or
quoted as code.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from iris.model.job.cancelling import state_text
from iris.model.job.demand_limits import cut
from iris.model.job.spec import JobSpec
from iris.model.job.status import JobStatus, TaskStatus
from iris.model.job.tags import format_tags
from iris.model.states import JobState, TaskState
from iris.model.units import MIB
from iris.scheduling.placement.refusals import IN_QUEUE, Refusal

if TYPE_CHECKING:  # a client uses only `summary`, and must not import the ledger
    from iris.model.host.hosts import Host
    from iris.model.slice.scaling import Action, GroupStatus
    from iris.model.slice.status import SliceStatus
    from iris.scheduling.ledger.ledger import Ledger
    from iris.scheduling.ledger.size import LedgerSize

#: The maximum number of entries of a list in Temporal's web UI. Of further tasks of a job, only the
#: number is shown.
SHOWN = 20
#: Characters that are markup in Markdown or in its extensions for mathematics, links and HTML.
_MARKUP = re.compile(r"([\\`*_\[\]<>$~|#&])")


def escaped(text: str) -> str:
    """Returns the text as Markdown that shows it unchanged, in one line."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


def code(text: str) -> str:
    """Returns the text quoted as code, in which nothing is markup."""
    text = " ".join(text.split())
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {text} {fence}" if longest else f"{fence}{text}{fence}"


def summary(spec: JobSpec) -> str:
    """Returns one line for lists: the command, shortened. It is not escaped."""
    text = " ".join(spec.command).replace("\n", " ")
    times = f"{spec.replicas} x " if spec.replicas > 1 else ""
    return times + (text if len(text) <= 120 else f"{text[:117]}...")


def job_details(
    spec: JobSpec,
    status: JobStatus,
    refusal: Refusal | None = None,
    refused_at: datetime | None = None,
) -> str:
    """Returns the state of a job and of its first tasks.

    Args:
        refusal: the scheduler's reason why the job waits, or one of its independent tasks; None if
            nothing waits.
        refused_at: when the scheduler gave the refusal.
    """
    waits = refusal if status.state is JobState.PENDING and status.cancelling is None else None
    lines = [
        *_headline(state_text(status), status.reason, waits),
        *_as_of(spec.id, waits, refused_at),
    ]
    lines += [
        (
            f"Job {code(spec.id)}: {code(summary(spec))}, each task with"
            f" {escaped(str(spec.resources))}."
        ),
        "",
    ]
    if spec.tags:
        lines += [f"Tags: {', '.join(map(code, format_tags(spec.tags)))}", ""]
    if spec.note:
        lines += [f"Note: {escaped(spec.note)}", ""]
    # A task whose reason is that of the whole job is shown without it.
    lines += [f"- {_task(task, status.reason)}" for task in status.tasks[:SHOWN]]
    if len(status.tasks) > SHOWN:
        lines.append(f"- … and {len(status.tasks) - SHOWN} more")
    return "\n".join(
        [
            *lines,
            "",
            f"Why: {code(f'iris explain {spec.id}')}, logs: {code(f'iris logs {spec.id}')}",
        ]
    )


def task_details(
    spec: JobSpec,
    task: TaskStatus,
    refusal: Refusal | None = None,
    refused_at: datetime | None = None,
) -> str:
    """Returns the state of one task of a job of several."""
    waits = refusal if task.state is TaskState.PENDING and task.cancelling is None else None
    lines = [
        *_headline(state_text(task), task.reason, waits),
        *_as_of(f"{spec.id}:{task.index}", waits, refused_at),
    ]
    lines += [f"Task {task.index} of {spec.num_tasks} of job {code(spec.id)}."]
    if task.host:
        lines.append(f"Attempt {task.attempt} on host {code(task.host)}.")
    return "\n".join([*lines, "", f"Logs: {code(f'iris logs {spec.id} --task {task.index}')}"])


def slice_details(status: "SliceStatus") -> str:
    """Returns the state of a slice, its hosts, and the steps that led to it."""
    lines = _headline(status.state, status.reason)
    if status.facts is not None:
        group, zone = code(status.facts.group), code(status.facts.zone)
        lines += [f"A slice of scale group {group} in {zone}, of {status.size} host(s).", ""]
    lines += _hosts(status.hosts)
    if status.steps:
        lines += ["", "Steps (UTC):", ""]
        lines += [
            f"- {step.at:%Y-%m-%d %H:%M:%S} **{step.state}**{_after_colon(step.reason)}"
            for step in status.steps
        ]
    return "\n".join(lines)


def scheduler_details(ledger: "Ledger", size: "LedgerSize") -> str:
    """Returns the numbers of hosts and gangs, and the pauses and closed hosts."""
    lines = [
        f"**{len(ledger.hosts)}** hosts, **{len(ledger.live)}** gangs placed,"
        f" **{len(ledger.waiting)}** waiting"
    ]
    if len(ledger.held):
        lines.append(f"{len(ledger.held)} held by their users")
    if size.full:
        lines.append(
            f"**The ledger is full**: {size.bytes / MIB:.2f} MiB; new requests are refused"
        )
    if ledger.paused is not None:
        lines.append(f"**PAUSED** {escaped(cut(ledger.paused))}")
    lines += [
        f"Scale group {code(group)} is paused{_after_colon(cut(why))}"
        for group, why in ledger.paused_groups.items()
    ]
    lines += [
        f"- host {code(host)}{_after_colon(cut(str(closure)))}"
        for host, closure in list(ledger.closed.items())[:SHOWN]
    ]
    return "\n\n".join(lines)


def autoscaler_details(
    groups: "Sequence[GroupStatus]", actions: "Sequence[Action]", notes: Sequence[str]
) -> str:
    """Returns the slices, demand, target and reason of each scale group, and then the last actions.

    Args:
        notes: the present problems, as Markdown.
    """
    lines = ["Observes the hosts and decides how many slices there are.", ""]
    lines += [f"- {note}" for note in notes] or ["All hosts report."]
    if groups:
        lines += ["", "Scale groups:", "", *map(_group, groups[:SHOWN])]
    if actions:
        lines += ["", "Last actions (UTC):", "", *map(_action, reversed(actions[-SHOWN:]))]
    return "\n".join(lines)


def counts(status: "GroupStatus") -> str:
    """Returns the number of slices by state, such as `2 READY, 1 PROVISIONING`."""
    return (
        ", ".join(f"{count} {state}" for state, count in status.counts.items() if count) or "none"
    )


def _headline(state: str, reason: str, refusal: Refusal | None = None) -> list[str]:
    """Returns the state, with the code and the remedy if something waits, and an empty line."""
    what = f"**{state}** ({refusal.code})" if refusal is not None else f"**{state}**"
    lines = [f"{what} {escaped(reason)}".strip(), ""]
    return (
        [*lines, f"Remedy: {escaped(refusal.remedy)}", ""]
        if refusal is not None and refusal.remedy
        else lines
    )


def _as_of(job: str, refusal: Refusal | None, refused_at: datetime | None) -> list[str]:
    """Returns the time of a refusal that has a place in the queue, and an empty line: the place
    changes more often than the page.
    """
    if refusal is None or refused_at is None or refusal.code not in IN_QUEUE:
        return []
    return [
        (
            f"As of {refused_at:%Y-%m-%d %H:%M} UTC; its present place in the queue:"
            f" {code(f'iris explain {job}')}"
        ),
        "",
    ]


def _task(task: TaskStatus, known: str) -> str:
    """Returns a task in one line, without its reason if that is `known` already."""
    host = f" on {code(task.host)}" if task.host else ""
    facts = [f"attempt {task.attempt}"] if task.attempt else []
    facts += [f"exit code {task.exit_code}"] if task.exit_code is not None else []
    reason = "" if task.reason == known else task.reason
    more = "".join(f", {fact}" for fact in facts)
    return f"task {task.index} **{state_text(task)}**{host}{more}{_after_colon(reason)}"


def _hosts(hosts: "Iterable[Host]") -> list[str]:
    shown = [
        f"- host {code(host.id)}: {escaped(str(host.resources))}; incarnation"
        f" {code(host.incarnation)}"
        for host in hosts
    ]
    return shown or ["No host has reported yet."]


def _group(each: "GroupStatus") -> str:
    return (
        f"- {code(each.group)} **{each.availability}**; slices: {counts(each)}; demand"
        f" {each.demand}, target {each.target}{_after_colon(each.why)}"
    )


def _action(each: "Action") -> str:
    what = f"{escaped(each.what)} in {code(each.group)}" + (
        f", slice {code(each.slice_id)}" if each.slice_id else ""
    )
    return f"- {each.at:%Y-%m-%d %H:%M:%S} {what}{_after_colon(each.reason)}"


def _after_colon(reason: str) -> str:
    return f": {escaped(reason)}" if reason else ""
