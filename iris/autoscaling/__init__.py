"""Decides how many slices each scale group should have, and explains each decision. Open `plan.py`
first: `plan.plan` makes one decision from packing, each group's availability and its slices. Must
not read the clock, use random numbers or do I/O, because it runs inside a workflow. It only
decides; it creates no slice.
"""
