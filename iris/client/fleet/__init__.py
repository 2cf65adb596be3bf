"""The client's operations on hosts, slices, the autoscaler and the store."""
