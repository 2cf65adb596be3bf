"""Configures the workers that run workflows. Clients do not import this module, because
`temporalio.worker` takes a tenth of a second to import.
"""

from temporalio.plugin import SimplePlugin
from temporalio.worker import UnsandboxedWorkflowRunner

from iris.client.connect.connection import data_converter
from iris.client.connect.encryption import PayloadKeys


class IrisPlugin(SimplePlugin):
    """A Temporal plugin. It gives all workers and replayers of Iris the same workflow runner, and
    the data converter that clients use.

    Workflows run outside the SDK's sandbox, because it re-imports their modules for every run. In
    its place, two tests find code that is not deterministic: the layering test (no clock, no
    randomness and no network in workflows and pure packages) and the replay of recorded histories.

    Args:
        keys, tolerant: the arguments of `data_converter`.
    """

    def __init__(self, keys: PayloadKeys | None = None, *, tolerant: bool = False) -> None:
        super().__init__(
            "iris",
            data_converter=data_converter(keys, tolerant=tolerant),
            workflow_runner=UnsandboxedWorkflowRunner(),
        )
