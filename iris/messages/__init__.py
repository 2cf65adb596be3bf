"""Messages that workflows, activities and clients send each other.

Open `scheduler.py` first, then `job.py` and `task.py`. These modules must not decide anything, do
I/O, or import Temporal, workflows or activities.
"""
