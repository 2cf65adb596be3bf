"""Binds the dependencies of a job to runs of other jobs, before the job is submitted."""

from collections.abc import Mapping, Sequence

from iris.activities.control.service import first_run
from iris.client.connect.rpc import Connection
from iris.client.jobs.find import describe_job, numbered_run, resolve_id
from iris.concurrency import for_each
from iris.model import names
from iris.model.job.dependencies import Dependency
from iris.model.job.spec import JobSpec

#: The maximum number of jobs that are looked up at the same time.
CONCURRENT = 16


async def bound(connection: Connection, spec: JobSpec) -> JobSpec:
    """Returns the job with the run of each job that it depends on: the latest run, or the run that
    the user named.

    Raises:
        NotFound: there is no such job or run.
        Unreachable: the service does not answer.
    """
    if all(job.run_id for job in spec.after):
        return spec

    async def bind(job: Dependency) -> Dependency:
        if job.run_id:
            return job
        if job.bare:
            job = job.model_copy(
                update={
                    "job": await resolve_id(connection, job.job.partition("/")[2]),
                    "bare": False,
                }
            )
        return job.model_copy(update={"run_id": await _first_run(connection, job)})

    return spec.model_copy(
        update={"after": tuple(await for_each(spec.after, bind, at_once=CONCURRENT))}
    )


def bound_to(spec: JobSpec, runs: Mapping[str, str]) -> JobSpec:
    """Returns the job with the runs of the jobs that it depends on and that were submitted together
    with it.

    Args:
        runs: the first runs of the jobs that were submitted, by their ids.
    """

    def bind(each: Dependency) -> Dependency:
        return (
            each.model_copy(update={"run_id": runs[each.job]})
            if each.number is None and each.job in runs
            else each
        )

    return spec.model_copy(update={"after": tuple(map(bind, spec.after))})


def among(specs: Sequence[tuple[str, JobSpec]]) -> tuple[list[JobSpec], list[str]]:
    """Resolves the dependencies between jobs that are submitted together, by their names. A job can
    only depend on jobs before it.

    Args:
        specs: each job, with the place that describes it.

    Returns:
        The jobs, and a sentence for each job that depends on a later job. A job that depends on its
        own name depends on the run before.
    """
    places = {spec.id: (index, spec.id, where) for index, (where, spec) in enumerate(specs)}
    bare = {names.job_id(spec.user, spec.name): places[spec.id] for _, spec in specs}
    resolved, problems = [], []
    for index, (where, spec) in enumerate(specs):
        after = []
        for each in spec.after:
            found = (bare if each.bare else places).get(each.job) if each.number is None else None
            if found is None:
                after.append(each)
                continue
            place, job, there = found
            if place > index:
                problems.append(
                    f"{where}: after {each.name!r}: {there} is submitted later; move it before"
                    f" {where}"
                )
            after.append(each.model_copy(update={"job": job, "bare": False}))
        resolved.append(spec.model_copy(update={"after": tuple(after)}))
    return resolved, problems


async def _first_run(connection: Connection, dependency: Dependency) -> str:
    job, run_id = dependency.job, None
    if dependency.number is not None:
        run_id = await numbered_run(connection, job, dependency.number)
    return first_run(await describe_job(connection, job, run_id))
