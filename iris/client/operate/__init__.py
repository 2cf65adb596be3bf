"""Starts, stops, inspects and repairs clusters. `controller.py` has the interface of a control
plane, and `make_controller.py` makes the control plane of a cluster. Must not print or prompt:
callers pass a function that receives progress messages.
"""
