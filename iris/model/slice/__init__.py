"""A slice: its scale group, its machines, its lifecycle, and the values of the autoscaler."""
