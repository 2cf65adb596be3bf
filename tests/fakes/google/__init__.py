"""A Google Cloud of its own process: TPU API v2 over gRPC, Compute API v1 over HTTP, metadata
servers, and machines that boot.

    python -m tests.fakes.google --state DIR [--tpu-port P --http-port Q --boot DIR]

Tests use it through `tests.fakes.google.client.FakeGoogle`. One store, one clock, one audit log; it
refuses more than Google does, and misbehaves on command (`control.py`). What it has and what it was
told survives its own death.
"""
