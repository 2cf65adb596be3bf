"""Formats a job as HTML for a notebook. Pure."""

from html import escape

from iris.client.jobs.explanation import reason_of
from iris.model.job.cancelling import state_text
from iris.model.job.status import JobStatus

#: The most tasks in the table. A job can have thousands of tasks.
MAX_TASKS = 20


def job_table(status: JobStatus, ui: str = "") -> str:
    """Returns the job's state, its reason and its tasks as HTML.

    Args:
        ui: the address of the job's page in Temporal's Web UI; empty for no link.
    """
    name = f'<a href="{escape(ui)}">{escape(status.id)}</a>' if ui else escape(status.id)
    head = f"<b>{name}</b> {escape(state_text(status))}: {escape(reason_of(status))}"
    rows = [
        _row(
            str(task.index),
            state_text(task),
            task.host or "",
            str(task.attempt),
            "" if task.exit_code is None else str(task.exit_code),
            task.reason,
        )
        for task in status.tasks[:MAX_TASKS]
    ]
    if len(status.tasks) > MAX_TASKS:
        rows.append(f'<tr><td colspan="6">and {len(status.tasks) - MAX_TASKS} more</td></tr>')
    columns = "".join(
        f"<th>{column}</th>"
        for column in ("task", "state", "host", "attempt", "exit code", "reason")
    )
    return f"<div>{head}<table><tr>{columns}</tr>{''.join(rows)}</table></div>"


def _row(*cells: str) -> str:
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
