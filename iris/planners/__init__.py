"""What the scheduler and the autoscaler do with messages and events, without Temporal.

The workflows of the two planners and the simulation (`iris.simulation`) use the same functions.
"""
