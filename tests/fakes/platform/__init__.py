"""Simulates a cloud in memory for tests, with failures that a test can trigger.

Open `platform.py` first: it shows how a test uses `FakePlatform`. Code here must not do any I/O or
read the real time; the time comes from the clock that the test passes.
"""
