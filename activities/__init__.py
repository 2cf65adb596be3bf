"""Defines the Temporal activities: all calls to platforms, hosts, storage and the Temporal client
that workflows need.

Open `control/outbox.py` first for the control plane, and `host/attempt/run_task.py` for a host's
agent. An activity must be safe to repeat, and must not import `iris.workflows` or Google's
libraries.
"""
