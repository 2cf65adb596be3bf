"""Runs the host agent: probes the machine, reports it to its slice, and serves its task queue.

Open `agent.py` first. The agent must not accept connections, and its death must not end a program:
the next agent continues with it.
"""
