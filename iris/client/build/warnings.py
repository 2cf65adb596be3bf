"""Warnings about jobs that are valid and may still be wrong."""

from iris.model.job.arrays import misspelt
from iris.model.job.secrets import looks_secret
from iris.model.job.spec import JobSpec
from iris.scheduling.placement.refusals import Refusal


def job_warnings(spec: JobSpec, *, option: str = "--env", remedy: str = "--secret {}") -> list[str]:
    """Returns a warning for each variable that looks like a secret, and for each `{name}` in the
    command that resembles a column.

    The job is submitted anyway, because the user may have meant it.

    Args:
        option: the option that has the variables.
        remedy: the option to use instead. `{}` stands for the name of the variable.
    """
    why = f"looks like a secret: every user of the cluster can read the values of {option}"
    named = [name for name, value in spec.env.items() if value and looks_secret(name)]
    secrets = [f"{name} {why}; use {remedy.format(name)}" for name in named]
    return [*secrets, *misspelt(spec.command, spec.array.columns if spec.array is not None else ())]


def infeasible(refusal: Refusal) -> str:
    """Returns why no host can ever run a job, and the remedy."""
    remedy = f"; {refusal.remedy}" if refusal.remedy else ""
    return f"no host can ever run this job: {refusal.message}{remedy}"
