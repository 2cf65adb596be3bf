"""Values that all roles share (jobs, gangs, hosts, slices, resources, constraints) and the tables
of their lifecycles.

Open `job/spec.py` first, then `states.py` and `job/requests.py`. This package must not import
another package of Iris, do I/O, or read the clock, randomness or the process environment.
"""
