"""Connects to Temporal, with the converter and codec that all processes of Iris share."""

import bz2
import dataclasses
import os
import re
import zlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.client import Client, Interceptor, Plugin
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import (
    DataConverter,
    DefaultFailureConverter,
    DefaultFailureConverterWithEncodedAttributes,
    PayloadCodec,
    PayloadConverter,
)
from temporalio.converter._payload_converter import _TemporalTransferTypePayloadConverter
from temporalio.exceptions import ApplicationError
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig

from iris.autoscaling.liveness import REPORT_INTERVAL
from iris.client.access.message_key import message_key
from iris.client.access.proofs import Arguments, Proofs
from iris.client.access.selection import keep_signed_in, sign_in
from iris.client.connect.credentials import credentials_for
from iris.client.connect.encryption import EncryptionCodec, PayloadKeys, TolerantCodec, payload_keys
from iris.client.connect.refusals import refused_at_once
from iris.messages.compression import BZIP2, ZLIB, compressed
from iris.model import names
from iris.model.errors import IrisError, Unreachable
from iris.model.message_keys import MessageKey
from iris.model.units import MIB, format_bytes

#: Payloads above this size, in bytes, are compressed. Smaller payloads stay readable in the Web UI.
#: In practice only the scheduler's state is larger.
COMPRESS_ABOVE = 32 * 1024
#: How long a query or an update may take before the control plane counts as unreachable.
RPC_TIMEOUT = timedelta(seconds=10)
#: The maximum size of the decompressed payloads of one message, in bytes. A full ledger of 1.75 MiB
#: decompresses to about 100 MiB if the names of its jobs compress extremely well.
MOST_DECODED = 256 * MIB


class _Decompressor(Protocol):
    """The interface that the decompressors of zlib and bz2 share."""

    @property
    def eof(self) -> bool: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


#: The decompressor for each encoding of a payload.
_DECOMPRESSORS: dict[bytes, Callable[[], _Decompressor]] = {
    ZLIB: zlib.decompressobj,
    BZIP2: bz2.BZ2Decompressor,
}


class TooLarge(IrisError):
    """Raised if a message decompresses to more bytes than Iris ever writes. Another program must
    have written the message.
    """


class CompressionCodec(PayloadCodec):
    """Compresses large payloads: the scheduler's state at continue-as-new must stay below 2 MiB."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [
            _compress(payload) if payload.ByteSize() > COMPRESS_ABOVE else payload
            for payload in payloads
        ]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Returns the payloads as they were before `encode`.

        Raises:
            TooLarge: the payloads together decompress to more than `MOST_DECODED`.
            ValueError: the compressed data is incomplete or damaged.
        """
        decoded, left = [], MOST_DECODED
        for payload in payloads:
            encoding = payload.metadata.get("encoding", b"")
            if encoding in _DECOMPRESSORS:
                plain = _decompress(encoding, payload.data, left)
                left -= len(plain)
                decoded.append(Payload.FromString(plain))
            else:
                decoded.append(payload)
        return decoded


def _compress(payload: Payload) -> Payload:
    data, encoding = compressed(payload.SerializeToString())
    return Payload(metadata={"encoding": encoding}, data=data)


def _decompress(encoding: bytes, data: bytes, most: int) -> bytes:
    """Returns the decompressed data, which has at most this many bytes."""
    name = encoding.decode()
    decompressor = _DECOMPRESSORS[encoding]()
    try:
        plain = decompressor.decompress(data, most + 1)
    except (zlib.error, OSError) as error:
        raise ValueError(
            f"a payload with the encoding {name} is incomplete or damaged: {error}"
        ) from None
    if len(plain) > most:
        text = (
            f"a message with a payload of {format_bytes(len(data))} ({name}) decompresses to more"
            " than"
        )
        raise TooLarge(
            f"{text} {format_bytes(MOST_DECODED)}; Iris did not write it: terminate the workflow"
            " that contains it"
        )
    if not decompressor.eof:
        raise ValueError(
            f"a payload with the encoding {name} is incomplete or damaged: its end is missing"
        )
    return plain


# The SDK puts a converter that is not of the private class into one of it, which copies the lists.
# It would convert types that the SDK registers for itself, which no message of Iris has.
class SharedConverter(PydanticPayloadConverter, _TemporalTransferTypePayloadConverter):
    """A payload converter whose instances share one state.

    The SDK creates a converter for every workflow activation. Without the shared state, each would
    build its Pydantic type adapters again. The lists that `from_payloads` returns also contain the
    payloads, because the proof of a message is checked against its payloads.
    """

    _shared = PydanticPayloadConverter()

    def __init__(self) -> None:
        self.__dict__ = self._shared.__dict__

    def from_payloads(
        self, payloads: Sequence[Payload], type_hints: list[type] | None = None
    ) -> list[Any]:
        """See base class."""
        arguments = Arguments(super().from_payloads(payloads, type_hints))
        arguments.payloads = [*payloads]
        return arguments


class FailureConverter(DefaultFailureConverter):
    """Converts errors to Temporal failures, without the traceback if the error must not be retried,
    such as the end of a job. With the traceback, Temporal's Web UI would show the line of Iris that
    raised the error.
    """

    def to_failure(
        self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure
    ) -> None:
        """See base class."""
        traceback = exception.__traceback__
        try:
            if isinstance(exception, ApplicationError) and exception.non_retryable:
                exception.__traceback__ = None
            super().to_failure(exception, payload_converter, failure)
        finally:
            exception.__traceback__ = traceback


class EncodedFailureConverter(FailureConverter, DefaultFailureConverterWithEncodedAttributes):
    """A `FailureConverter` that also moves the texts of a failure into a payload, so that the codec
    encrypts the texts.
    """


def data_converter(keys: PayloadKeys | None = None, *, tolerant: bool = False) -> DataConverter:
    """Returns the converter and codec that every client, worker and replayer of Iris uses.

    Args:
        keys: the keys that encrypt payloads and the texts of failures; None to encrypt nothing.
        tolerant: whether a message that cannot be decoded fails alone, as a control plane needs.
    """
    codec = EncryptionCodec(CompressionCodec(), keys)
    return DataConverter(
        payload_converter_class=SharedConverter,
        payload_codec=TolerantCodec(codec) if tolerant else codec,
        failure_converter_class=EncodedFailureConverter if keys else FailureConverter,
    )


def cause_of(message: str) -> str:
    """Returns the cause in an error message of the SDK. The SDK wraps the message of the system in
    the names of its internal types.
    """
    if quoted := re.search(r'(?:message|error): "([^"]+)"', message):
        return quoted[1].lower()
    text, layers, _ = message.partition("tonic::")
    if not layers:
        return message
    if "InvalidContentType" in message:
        return "it does not speak TLS, which Temporal's variables or profile ask for"
    return text.rstrip(": ").lower()


def make_runtime(*, quiet: bool = False, metrics: str = "") -> Runtime:
    """Returns the part of the SDK that all clients and workers of a process may share.

    Args:
        quiet: as in `connect`.
        metrics: the `host:port` at which the SDK serves its metrics; empty: it serves none.
    """
    served = PrometheusConfig(
        metrics, counters_total_suffix=True, unit_suffix=True, durations_as_seconds=True
    )
    telemetry = TelemetryConfig(metrics=served if metrics else None)
    if quiet:
        telemetry = dataclasses.replace(telemetry, logging=None)
    return Runtime(telemetry=telemetry, worker_heartbeat_interval=REPORT_INTERVAL)


async def connect(
    address: str,
    namespace: str = "default",
    *,
    identity: str | None = None,
    timeout: timedelta = timedelta(seconds=10),
    quiet: bool = False,
    plugins: Sequence[Plugin] = (),
    runtime: Runtime | None = None,
    cluster: str = "",
) -> Client:
    """Connects to the Temporal service at `host:port`. Temporal's environment variables and profile
    supply TLS settings and an API key, if they are for this address. If this process has an
    identity for the address, the client sends and renews tokens of it. If it has the message key of
    the cluster there, the client authenticates its messages.

    Args:
        quiet: whether to switch off the log of the SDK's core. It goes to standard output, which a
            command needs for its own output.
        plugins: the plugins of the workers that use the client. A plugin may replace the converter.
        runtime: the result of `make_runtime`, to share one; None to make one.
        cluster: the name of the cluster, if it was started from here.

    Raises:
        Unreachable: no service answers at the address within the timeout.
        InvalidValue: the file with the cluster's payload keys or its message key, or the identity,
            cannot be used.
        Rejected: the service refuses this client; or a token would be sent without TLS.
    """
    key = message_key(cluster, address)
    credentials = credentials_for(address)
    settings: dict[str, Any] = {
        **credentials.settings,
        "target_host": address,
        "namespace": namespace,
    }
    signed_in = await sign_in(address, settings)
    try:
        client = await Client.connect(
            **settings,
            plugins=plugins,
            interceptors=_interceptors(key),
            data_converter=data_converter(payload_keys()),
            identity=identity,
            runtime=runtime or make_runtime(quiet=quiet),
            connect_timeout=timeout,
        )
    except (RuntimeError, ValueError) as error:  # ValueError: the address is malformed
        if (refusal := refused_at_once(error, address)) is not None:
            raise refusal from None
        problem = cause_of(str(error))
        hint = f"; {credentials.withheld}" if credentials.withheld else ""
        raise Unreachable(
            f"no Temporal service answers at {address} (namespace {namespace}): {problem}{hint}"
        ) from None
    if signed_in is not None:
        keep_signed_in(client, *signed_in)
    return client


def reconfigured(client: Client, **settings: Any) -> Client:
    """Returns a client of the same connection with other settings.

    Args:
        settings: arguments of `Client` that replace those of the client. Its plugins have changed
            the others already.
    """
    return Client(**{**client.config(active_config=True), "plugins": [], **settings})


def _interceptors(key: MessageKey | None) -> list[Interceptor]:
    """Returns the interceptor of proofs if there is a key, and the interceptor of traces if tracing
    is on, or if this is a job with a trace.
    """
    proofs: list[Interceptor] = [] if key is None else [Proofs(SharedConverter(), key)]
    in_traced_job = names.ENV_TRACEPARENT in os.environ and names.ENV_JOB_ID in os.environ
    if names.ENV_TRACING not in os.environ and not in_traced_job:
        return proofs
    from iris.client.connect.tracing import SubmissionTracing  # most processes have no traces

    return [SubmissionTracing(), *proofs]
