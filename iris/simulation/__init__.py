"""Runs a workload on a configuration in virtual time, with the code of the real cluster.

The scheduler's ledger, the autoscaler's plans and the lifecycles of gangs and slices are those that
the workflows use. This package has what they need from the world: programs that take time, machines
that boot, are out of stock or are preempted, and a queue of events instead of a clock. It uses no
clock and no random numbers: the same input gives the same bytes.
"""
