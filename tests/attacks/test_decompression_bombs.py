"""Small payloads that decode to more memory than a process has. Anybody who may start a workflow
can send one.
"""

import bz2
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from temporalio.api.common.v1 import Payload

from iris.client.connect import connection
from iris.client.connect.connection import CompressionCodec, TooLarge
from iris.model.units import MIB

#: A limit that keeps these tests quick; the bombs exceed it as real ones exceed the real limit.
LIMIT = 2 * MIB

Compress = Callable[[bytes], bytes]


@pytest.fixture(autouse=True)
def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_DECODED", LIMIT)


def payload(encoding: str, compress: Compress, size: int) -> Payload:
    """A payload whose message is about `size` zero bytes."""
    plain = Payload(metadata={"encoding": b"binary/plain"}, data=bytes(size)).SerializeToString()
    return Payload(metadata={"encoding": encoding.encode()}, data=compress(plain))


@pytest.mark.long
@pytest.mark.parametrize(
    ("encoding", "compress"), [("binary/zlib", zlib.compress), ("binary/bzip2", bz2.compress)]
)
async def test_a_bomb_is_refused_before_it_takes_memory(encoding: str, compress: Compress) -> None:
    """Each process that reads it would be killed: control plane, agents, and every command that
    lists jobs.
    """
    bomb = payload(encoding, compress, 128 * MIB)
    assert bomb.ByteSize() < MIB

    tracemalloc.start()
    try:
        with pytest.raises(TooLarge, match="decompresses to more than 2 MiB") as refused:
            await CompressionCodec().decode([bomb])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert encoding in str(refused.value)
    assert peak < 4 * LIMIT


async def test_many_bombs_in_one_message_share_one_limit() -> None:
    """Each of them alone is small enough; a message of 4 MiB holds a hundred."""
    bombs = [payload("binary/zlib", zlib.compress, LIMIT // 2) for _ in range(3)]
    assert len(await CompressionCodec().decode(bombs[:1])) == 1

    with pytest.raises(TooLarge):
        await CompressionCodec().decode(bombs)


@pytest.mark.parametrize(
    ("encoding", "compress"), [("binary/zlib", zlib.compress), ("binary/bzip2", bz2.compress)]
)
async def test_a_payload_below_the_limit_decodes_to_what_it_was(
    encoding: str, compress: Compress
) -> None:
    """The scheduler's state goes through this codec."""
    (decoded,) = await CompressionCodec().decode([payload(encoding, compress, LIMIT - 100)])

    assert decoded.data == bytes(LIMIT - 100)


@pytest.mark.parametrize(
    ("encoding", "compress"), [("binary/zlib", zlib.compress), ("binary/bzip2", bz2.compress)]
)
async def test_a_payload_that_was_cut_off_is_refused(encoding: str, compress: Compress) -> None:
    """Half of a ledger must not pass for a whole one."""
    whole = payload(encoding, compress, 10_000)
    with pytest.raises(ValueError, match="incomplete or damaged"):
        await CompressionCodec().decode([Payload(metadata=whole.metadata, data=whole.data[:-8])])
    with pytest.raises(ValueError, match="incomplete or damaged"):
        await CompressionCodec().decode(
            [Payload(metadata=whole.metadata, data=b"no archive at all")]
        )
