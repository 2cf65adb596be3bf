"""Iris: a durable job orchestrator for TPU slices, GPU and CPU machines, built on Temporal."""
