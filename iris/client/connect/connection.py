"""Connects to Temporal. One plugin gives clients, workers, tests and the replayer the same converter and codec."""

import bz2
import re
import zlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import (
    DataConverter,
    DefaultFailureConverter,
    DefaultFailureConverterWithEncodedAttributes,
    PayloadCodec,
)
from temporalio.envconfig import ClientConfig
from temporalio.plugin import SimplePlugin
from temporalio.runtime import Runtime, TelemetryConfig
from temporalio.worker import UnsandboxedWorkflowRunner

from iris.autoscaling.liveness import REPORT_INTERVAL
from iris.client.connect.encryption import EncryptionCodec, PayloadKeys, payload_keys
from iris.model.errors import Unreachable

#: Payloads in bytes. Smaller ones stay readable in the Web UI; only the scheduler's state is ever larger.
COMPRESS_ABOVE = 32 * 1024
#: The zlib level. The state of 10,000 hosts and 100,000 waiting gangs takes 2.23 MiB with level 1 and 1.91 MiB with level 6.
LEVEL = 6
#: How long a query or an update may take before the control plane counts as unreachable.
RPC_TIMEOUT = timedelta(seconds=10)
#: Compressed payloads in bytes. Larger ones are compressed with bzip2, which takes a fifth less space and five times as long:
#: that state then takes 1.58 MiB.
LARGE = 1024 * 1024
_DECOMPRESS: dict[bytes, Callable[[bytes], bytes]] = {b"binary/zlib": zlib.decompress, b"binary/bzip2": bz2.decompress}


class CompressionCodec(PayloadCodec):
    """Compresses large payloads: the scheduler's state at continue-as-new must stay below 2 MiB."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [_compress(payload) if payload.ByteSize() > COMPRESS_ABOVE else payload for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [_decompress(payload) for payload in payloads]


def _compress(payload: Payload) -> Payload:
    plain = payload.SerializeToString()
    data, encoding = zlib.compress(plain, level=LEVEL), b"binary/zlib"
    if len(data) > LARGE:
        data, encoding = bz2.compress(plain), b"binary/bzip2"
    return Payload(metadata={"encoding": encoding}, data=data)


def _decompress(payload: Payload) -> Payload:
    decompress = _DECOMPRESS.get(payload.metadata.get("encoding", b""))
    return Payload.FromString(decompress(payload.data)) if decompress else payload


class SharedConverter(PydanticPayloadConverter):
    """A payload converter whose instances share one state.

    The SDK creates a converter for every workflow activation, and each would build its type adapters again.
    """

    _shared = PydanticPayloadConverter()

    def __init__(self) -> None:
        self.__dict__ = self._shared.__dict__


class IrisPlugin(SimplePlugin):
    """The converter, codec and workflow runner that every client, worker and replayer of Iris uses.

    Workflows run outside the SDK's sandbox, because it re-imports their modules for every run. The layering test (no clock, no
    randomness and no network in workflows and pure packages) and the replay of recorded histories guard against the same faults.

    Args:
        keys: encrypt payloads and the texts of failures.
    """

    def __init__(self, keys: PayloadKeys | None = None) -> None:
        super().__init__(
            "iris",
            data_converter=DataConverter(
                payload_converter_class=SharedConverter,
                payload_codec=EncryptionCodec(CompressionCodec(), keys),
                failure_converter_class=DefaultFailureConverterWithEncodedAttributes if keys else DefaultFailureConverter,
            ),
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
    """Connects to the Temporal service at `host:port`. Temporal's environment variables supply TLS, API key and the like.

    Args:
        quiet: the SDK's core logs nothing. It logs to standard output, which a command needs for its own output.

    Raises:
        Unreachable: no service answers there within the timeout, or the service refuses the connection.
        InvalidValue: the file with the cluster's keys cannot be used.
    """
    settings: dict[str, Any] = {**ClientConfig.load_client_connect_config(), "target_host": address, "namespace": namespace}
    telemetry = TelemetryConfig(logging=None) if quiet else TelemetryConfig()
    try:
        return await Client.connect(
            **settings,
            plugins=[IrisPlugin(payload_keys())],
            identity=identity,
            runtime=Runtime(telemetry=telemetry, worker_heartbeat_interval=REPORT_INTERVAL),
            connect_timeout=timeout,
        )
    except (RuntimeError, ValueError) as error:  # ValueError: the address is malformed
        cause = re.search(r'message: "([^"]+)"', str(error))  # the SDK wraps the system's message in those of its layers
        problem = cause[1].lower() if cause else str(error)
        raise Unreachable(f"no Temporal service answers at {address} (namespace {namespace}): {problem}") from None
