"""The autoscaler's workflow."""
