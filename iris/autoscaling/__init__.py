"""Decides how many slices each scale group should have, and explains each decision.

Open `plan.py` first: `plan.plan` makes one decision from the waiting gangs, the availability of the
groups and their slices. The package creates no slice. It must not read a clock, use random numbers
or do I/O, because it runs inside a workflow.
"""
