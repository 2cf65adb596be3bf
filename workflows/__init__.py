"""Defines the Temporal workflows: jobs, tasks, slices, the scheduler and the autoscaler.

Open `jobs/job.py` first; `policies.py` has every timeout and retry policy. Workflow code must do no
I/O: it must not import `time` or `iris.platforms`, and must not call `asyncio.sleep`.
"""
