"""A gRPC service for one test, in the test's own event loop."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc


@asynccontextmanager
async def served(handler: grpc.GenericRpcHandler) -> AsyncIterator[str]:
    """Serves the handler for the duration of the block, and yields the address."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)
