"""Decides which gang gets which hosts, and explains why a gang waits.

Open `ledger` first: it holds the scheduler's state, and `Ledger.settle` runs a scheduling pass.
This package must not read a clock, use randomness, do I/O or import Temporal.
"""
