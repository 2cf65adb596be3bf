"""Contains the processes of a cluster: the control plane, the host agents, and a cluster on one
machine.

Open `control_plane/serve.py` first, then `host/agent.py`. The modules must only wire other packages
together. They must not make scheduling, scaling or retry decisions.
"""
