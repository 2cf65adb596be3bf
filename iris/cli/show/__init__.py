"""Shows results in a terminal: tables, live progress, jobs, hosts."""

from typing import TYPE_CHECKING

from iris.lazy import modules_of

if TYPE_CHECKING:
    from iris.cli.show import fitted_table as fitted_table
    from iris.cli.show import live as live
    from iris.cli.show import live_job as live_job
else:
    __getattr__ = modules_of(__name__)
