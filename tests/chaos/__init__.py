"""A whole cluster under faults, judged by what its programs wrote: `python -m tests.chaos`.

`run` has one run from start to verdict. `plan` chooses the faults and `load` the jobs, both by a
seed; `cluster` has the processes and `faults` what is done to them. `checker` gives the verdict. It
imports nothing of Iris and reads files alone: the records of `program`, which each job runs, the
log of the faults, and the audit log of the fake Google.
"""
