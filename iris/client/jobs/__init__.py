"""The client's operations on jobs: submission, status, results, files."""

from typing import TYPE_CHECKING

from iris.lazy import modules_of

if TYPE_CHECKING:
    from iris.client.jobs import estimate as estimate
    from iris.client.jobs import submitted as submitted
    from iris.client.jobs import task_reports as task_reports
    from iris.client.jobs import trial as trial
    from iris.client.jobs import usage as usage
    from iris.client.jobs import use_over_time as use_over_time
else:
    __getattr__ = modules_of(__name__)
