"""What a host has: resources, accelerators, attributes with the constraints on them, faults,
limits.
"""
