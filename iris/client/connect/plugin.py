"""Configures the workers that run workflows. Clients do without it: `temporalio.worker` costs a
tenth of a second to import.
"""

from temporalio.plugin import SimplePlugin
from temporalio.worker import UnsandboxedWorkflowRunner

from iris.client.connect.connection import data_converter
from iris.client.connect.encryption import PayloadKeys


class IrisPlugin(SimplePlugin):
    """The workflow runner of all workers and replayers of Iris, with the converter that clients
    have, too.

    Workflows run outside the SDK's sandbox, because it re-imports their modules for every run. The
    layering test (no clock, no randomness and no network in workflows and pure packages) and the
    replay of recorded histories guard against the same faults.

    Args:
        keys, tolerant: as in `data_converter`.
    """

    def __init__(self, keys: PayloadKeys | None = None, *, tolerant: bool = False) -> None:
        super().__init__(
            "iris",
            data_converter=data_converter(keys, tolerant=tolerant),
            workflow_runner=UnsandboxedWorkflowRunner(),
        )
