"""Decides which gang gets which hosts, explains why a gang waits, and decides how a gang gets from
its submission to its end.

Open `ledger` first: it holds the scheduler's state, and `Ledger.settle` runs a scheduling pass. A
package imports only the packages before it:

    placement   the pass: capacity, turns, evictions
    reasons     why a gang waits, and for how long
    ledger      the scheduler's state and its changes
    jobs        the decisions of the workflows of jobs: lifecycle of a gang, retries

This package must not read a clock, use randomness, do I/O or import Temporal.
"""
