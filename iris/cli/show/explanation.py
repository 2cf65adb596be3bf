"""Formats explanations and forecasts of jobs for people and for programs.

The keys of the JSON are a public contract (tests/cli).
"""

from datetime import datetime
from typing import TYPE_CHECKING, Any

from iris.cli.show.columns import Column, age, several
from iris.cli.show.jobs import children_text
from iris.cli.show.listing import Listing, headline
from iris.cli.show.resources import amounts_json
from iris.client.jobs.explanation import Explanation
from iris.model.host.resources import format_amounts
from iris.model.job.attempts import Account, AttemptRecord
from iris.model.job.cancelling import state_text
from iris.model.job.spec import JobSpec
from iris.scheduling.placement.refusals import Refusal, RefusalCode

if TYPE_CHECKING:  # most commands do not need it
    from iris.scheduling.reasons.forecast import Fit, Forecast
    from iris.usage.estimate import Estimate

# Tasks may share a host.
ATTEMPTS: Listing[AttemptRecord] = Listing(
    Column("ATTEMPT", "number"),
    Column(
        "PLACED (UTC)", "placed_at", text=lambda time: f"{time:%Y-%m-%d %H:%M:%S}", optional=True
    ),
    Column(
        "RAN",
        value=lambda each: each.started_at and each.ended_at - each.started_at,
        absent="never started",
    ),
    Column(key="started_at"),
    Column(key="ended_at"),
    Column(
        "HOSTS", "hosts", text=lambda hosts: several(list(dict.fromkeys(hosts)), 1), shortens=True
    ),
    Column(
        "COUNTED AS", "account", text=lambda account: None if account is Account.NONE else account
    ),
    Column("OUTCOME", "reason", absent="succeeded", wraps=True),
    Column(key="ends"),
    keys="number hosts placed_at started_at ended_at account reason ends",
)
FITS: "Listing[Fit]" = Listing(
    Column("GROUP", "group", shortens=True),
    Column("HOSTS", "hosts"),
    Column("FITS", "fits"),
    Column("REASON", "why", absent="", wraps=True),
    Column(
        "HOST IDS",
        value=lambda fit: ", ".join(fit.named) + (" …" if fit.hosts > len(fit.named) else ""),
        absent="",
        wraps=True,
    ),
    Column(key="named"),
    keys="group fits why hosts named",
)


def explanation_json(explanation: Explanation) -> dict[str, Any]:
    """Returns an explanation as JSON, with the same keys for every job.

    For a job that does not wait, the code is the job's state, and the numbers are empty.
    """
    refusal = explanation.refusal or Refusal(code=RefusalCode.UNKNOWN, message="")
    numbers = refusal.model_dump(mode="json")
    keys = (
        "hosts",
        "ahead",
        "ahead_first",
        "excluded",
        "remedy",
        "scaling",
        "since",
        "group_needs",
        "group_has",
    )
    attempts = [
        {"task": task, **ATTEMPTS.json(record)}
        for task, records in explanation.attempts.items()
        for record in records
    ]
    return {
        "id": explanation.id,
        "state": explanation.state,
        "cancelling": (
            explanation.cancelling.model_dump(mode="json")
            if explanation.cancelling is not None
            else None
        ),
        "code": explanation.code,
        "message": explanation.message,
        **{key: numbers[key] for key in keys},
        "needed": amounts_json(refusal.needed),
        "free": amounts_json(refusal.free),
        "quotas": [each.model_dump(mode="json") for each in refusal.quotas],
        "attempts": attempts,
        "parent": explanation.parent,
        "children": [{"id": row.id, "state": row.state} for row in explanation.children],
    }


def explanation_text(explanation: Explanation, now: datetime, submission: str = "") -> str:
    """Formats the explanation of a job's state, for people.

    Args:
        submission: the text about its submission (`submission_text`).
    """
    refusal = explanation.refusal
    lines = [
        headline(explanation.id, state_text(explanation), refusal.code if refusal else ""),
        explanation.message,
    ]
    if refusal is not None:
        if refusal.since is not None:
            lines.append(f"requested: {age(refusal.since, now)} ago")
        if refusal.needed:
            lines.append(f"needed: {format_amounts(refusal.needed)}")
        if refusal.free:
            lines.append(f"available: {format_amounts(refusal.free)}")
        if len(refusal.excluded) > 1:
            lines.append(
                "excluded: "
                + ", ".join(f"{count} by {text}" for text, count in refusal.excluded.items())
            )
        if refusal.ahead_first:
            more = refusal.ahead - len(refusal.ahead_first)
            lines.append(
                f"ahead: {', '.join(refusal.ahead_first)}{f' and {more} more' if more > 0 else ''}"
            )
        if refusal.remedy:
            lines.append(f"remedy: {refusal.remedy}")
    if explanation.parent is not None:
        lines.append(f"parent: {explanation.parent}")
    if explanation.children:
        lines.append(f"children: {children_text(explanation.children)}")
    for task, records in explanation.attempts.items():
        if records:
            label = f"task {task}, " if len(explanation.attempts) > 1 else ""
            ended = "attempts have ended" if len(records) > 1 else "attempt has ended"
            lines += ["", f"{label}{len(records)} {ended}:", ATTEMPTS.table(records, now)]
    return "\n".join([*lines, *(["", submission] if submission else [])])


def forecast_json(found: "Forecast", estimate: "Estimate | None" = None) -> dict[str, Any]:
    refusal = found.refusal and found.refusal.model_dump(
        mode="json", include={"code", "message", "remedy"}
    )
    return {
        "starts": bool(found.hosts),
        "hosts": list(found.hosts),
        "feasible": found.infeasible is None,
        "refusal": refusal,
        "verdicts": [FITS.json(fit) for fit in found.fits],
        "estimate": estimate and estimate.model_dump(),
    }


def forecast_text(spec: JobSpec, found: "Forecast", estimate: "Estimate | None" = None) -> str:
    """Formats the forecast for a job, for people: whether it would start now, and what it costs."""
    what = (
        "the job"
        if spec.replicas == 1 or spec.coscheduling
        else f"each of its {spec.replicas} tasks"
    )
    if found.hosts:
        lines = [f"{what} would start now on {', '.join(found.hosts)}"]
    elif (refusal := found.infeasible or found.refusal) is not None:
        lead = (
            "no host can ever run the job" if found.infeasible is not None else f"{what} would wait"
        )
        lines = [f"{lead}: {refusal.code}  {refusal.message}"]
        if refusal.remedy:
            lines.append(f"remedy: {refusal.remedy}")
    else:
        lines = [f"{what} would wait"]
    if estimate is not None:
        lines.append(f"the job {estimate}")
    return "\n".join([*lines, *(["", FITS.table(found.fits)] if found.fits else [])])
