"""What a host has: resources, accelerators, constraints, faults."""
