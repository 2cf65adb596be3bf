"""Runs a cluster on one machine: a Temporal dev server, a control plane and the agents of all
hosts.

Open `cluster.py` first, then `launch.py`, which starts and stops it from outside.
It must not decide which machines the cluster has: the autoscaler requests them.
"""
