"""Runs the program of an attempt on a host, as a plain process or in a container.

Open `base.py` first: it defines `Runtime` and `Launch`. It must not import `iris.workflows` or a
platform, or make a program depend on its agent: a program outlives the agent.
"""
