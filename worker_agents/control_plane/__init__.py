"""Runs the control plane: the workers that execute a cluster's workflows and its control
activities.

Open `serve.py` first. The process must not keep state of its own: several control planes may run,
and each may die at any time.
"""
