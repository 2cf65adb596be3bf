"""Pools of workers that run calls of functions. Calls travel as Temporal activities without a
workflow, on a task queue for each pool. Open `pool.py` first. `worker.py` runs in the pool's jobs,
and `executor.py` and `launch.py` are copied to them. Must not decide what a job is: the workers are
tasks of ordinary jobs.
"""
