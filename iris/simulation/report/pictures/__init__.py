"""Draws what happened in simulations, as SVG: queue and use over time, waits as distributions, and
slices as bars. `drawing` has the parts that the pictures share.
"""
