"""Values that all roles share (jobs, gangs, hosts, slices, resources, constraints) and the state
tables of tasks and slices.

Open `jobs.py` first, then `states.py` and `requests.py`. It must not import another package of
Iris, do I/O, or read the clock, randomness or the process environment.
"""
