"""Submits and watches jobs and operates clusters, for programs and for the command line.
Open `client.py` first; each of its attributes has a module or folder, such as `jobs/client.py`.
`connect/` finds a cluster, `operate/` starts, stops and repairs one.
Must not import `iris.cli`, nor `iris.worker_agents` except to run a local cluster."""
