"""Holds the activities that a host agent serves: tasks, commands beside tasks, profiles and pings.
Open `attempt/run_task.py` first, then `attempt/attempt.py`. Must not import `iris.workflows` or
Google's libraries, and must not decide about retries or placement.
"""
