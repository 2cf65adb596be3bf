"""The bundles of a job that was submitted before: its files, its function, and the rows of its array."""

from iris.model.bundles import Bundle
from iris.model.jobs import JobSpec


def bundles_of(spec: JobSpec) -> list[Bundle]:
    """Returns the bundles that the tasks of the job need."""
    table = None if spec.array is None else spec.array.table
    return [bundle for bundle in (spec.bundle, spec.call, table) if bundle is not None]
