"""Commands for hosts, slices, scale groups and the autoscaler."""
