"""The pauses that the planners keep, in the workflows and in a simulation."""

from datetime import timedelta

#: The shortest time between two evaluations of the autoscaler; changes in between are evaluated
#: together.
EVALUATE_EVERY = timedelta(seconds=1)
#: The pause between two `demand` signals to the autoscaler.
WAKE_EVERY = timedelta(seconds=1)
#: The additional pause before a signal that is not urgent, because the demand was as high at an
#: earlier signal (`DemandWatch.urgent`). In a busy cluster, gangs come and go all the time, and
#: each signal costs some twenty history events.
WAKE_AGAIN = timedelta(seconds=4)
