"""One way to connect: the same converter and codec for clients, workers, tests and the replayer, through one plugin."""

import zlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import DataConverter, PayloadCodec
from temporalio.envconfig import ClientConfig
from temporalio.plugin import SimplePlugin
from temporalio.runtime import Runtime, TelemetryConfig
from temporalio.worker import UnsandboxedWorkflowRunner

from iris.errors import Unreachable
from iris.liveness import REPORT_EVERY

#: Smaller payloads stay readable in the Web UI; only the scheduler's book is ever larger.
COMPRESS_ABOVE = 32 * 1024
#: Of zlib. With 1 the book of 10,000 hosts and 100,000 waiting gangs takes 2.23 MiB, with 6 it takes 1.91 MiB.
LEVEL = 6
_ENCODING = b"binary/zlib"


class CompressionCodec(PayloadCodec):
    """Large payloads travel compressed: the scheduler's book at continue-as-new must stay below 2 MiB."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [_compress(payload) if payload.ByteSize() > COMPRESS_ABOVE else payload for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [
            Payload.FromString(zlib.decompress(payload.data)) if payload.metadata.get("encoding") == _ENCODING else payload
            for payload in payloads
        ]


def _compress(payload: Payload) -> Payload:
    return Payload(metadata={"encoding": _ENCODING}, data=zlib.compress(payload.SerializeToString(), level=LEVEL))


class SharedConverter(PydanticPayloadConverter):
    """One converter for all: the SDK makes one for every activation of a workflow, each with its type adapters to build anew."""

    _shared = PydanticPayloadConverter()

    def __init__(self) -> None:
        self.__dict__ = self._shared.__dict__


class IrisPlugin(SimplePlugin):
    """What every client, worker and replayer of Iris has in common.

    Workflows run outside the SDK's sandbox: it re-imports their modules for every run. What it guards against is guarded by the
    layering test (no clock, no randomness, no network in workflows and vocabulary) and by replaying recorded histories.
    """

    def __init__(self) -> None:
        super().__init__(
            "iris",
            data_converter=DataConverter(payload_converter_class=SharedConverter, payload_codec=CompressionCodec()),
            workflow_runner=UnsandboxedWorkflowRunner(),
        )


async def connect(
    address: str,
    namespace: str = "default",
    *,
    identity: str | None = None,
    timeout: timedelta = timedelta(seconds=10),
    quiet: bool = False,
) -> Client:
    """A client of the Temporal service at `host:port`. TLS, API key and the like come from Temporal's own environment variables.

    Args:
        quiet: the SDK's core logs nothing. It does so on standard output, which on a command line belongs to the command.

    Raises:
        Unreachable: nobody answers there within the timeout, or whoever answers refuses.
    """
    settings: dict[str, Any] = {**ClientConfig.load_client_connect_config(), "target_host": address, "namespace": namespace}
    telemetry = TelemetryConfig(logging=None) if quiet else TelemetryConfig()
    try:
        return await Client.connect(
            **settings,
            plugins=[IrisPlugin()],
            identity=identity,
            runtime=Runtime(telemetry=telemetry, worker_heartbeat_interval=REPORT_EVERY),
            connect_timeout=timeout,
        )
    except (RuntimeError, ValueError) as error:  # the latter: it is no address
        raise Unreachable(f"no Temporal service answers at {address} (namespace {namespace}): {error}") from None
