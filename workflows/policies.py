"""Every timeout and retry policy, each with its reason."""

from datetime import timedelta

from temporalio.common import RetryPolicy

#: Temporal never repeats an attempt by itself: who pays for it and where it goes next is decided in workflow code.
ONCE = RetryPolicy(maximum_attempts=1)

#: For deeds that must be done however long a service is away. Ten seconds between tries: an outage ends without a stampede.
UNTIL_DONE = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=10))

#: For questions that can wait: when nobody answers, they are asked again later, and other news is heard meanwhile.
A_FEW_TIMES = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=3)

#: The shortest timer. None at all, where another clock would have started one, would be another history.
MOMENT = timedelta(milliseconds=1)

#: The first try of an exchange, inside the workflow task. Longer would hold a workflow-task slot and be re-run by its heartbeat.
EXCHANGE_QUICK = timedelta(seconds=2)
#: Each further try, as a normal activity.
EXCHANGE_PATIENT = timedelta(seconds=30)

#: Nobody took the attempt from its host's queue: it is undelivered. An idle agent polls all the time, so this is long.
SCHEDULE_TO_START = timedelta(seconds=60)
#: The agent says every two seconds that the attempt lives. A minute covers a restart of the server and a stall of the network.
HEARTBEAT = timedelta(seconds=60)
#: The agent itself ends an attempt that runs too long; the server's clock is only for agents that fail to.
TIMEOUT_MARGIN = timedelta(minutes=2)
#: For programs without a limit: Temporal wants a number. Ten years.
NO_TIMEOUT = timedelta(days=3650)

#: One call to the platform or the server's list of workers.
OBSERVE = timedelta(seconds=20)
#: One call to a platform. Some answer slowly; what was done meanwhile is found by the next call, which has the same name.
PLATFORM_CALL = timedelta(seconds=60)
#: For what machines have said last: they are given back thereafter, and cost as long as they are there.
LAST_WORDS = timedelta(seconds=30)
#: Machines that the platform repairs for longer than this are given back: another slice is there in less. Most repairs take some
#: minutes, maintenance of a large slice hours.
REPAIR_GRACE = timedelta(minutes=15)
#: Before a platform that did not answer is asked again about machines that are overdue.
LOOK_AGAIN = timedelta(seconds=30)
#: Between two questions whether machines are gone: doubled each time, up to the most.
DELETE_LOOK = timedelta(milliseconds=200)
MOST_DELETE_LOOK = timedelta(seconds=30)
#: So long a slice that ends waits for the scheduler to take its hosts out, before its machines are given back all the same.
SCHEDULER_PATIENCE = timedelta(minutes=1)
#: Between two questions whether a draining slice is free: doubled each time, up to the most.
DRAIN_LOOK = timedelta(seconds=1)
MOST_DRAIN_LOOK = timedelta(minutes=2)
#: And once what runs on it has been told to go, for a little longer than its grace.
MOST_EVICTION_LOOK = timedelta(seconds=5)
#: After its deadline what runs on a draining slice has its grace, and then so long to be accounted for, before it goes anyway.
EVICTION_PATIENCE = timedelta(minutes=2)
#: Asking the scheduler what is wanted.
ASK = timedelta(seconds=10)
#: The shortest time between two evaluations; what comes in between is evaluated together.
EVALUATE_EVERY = timedelta(seconds=1)
#: Looks between two censuses of the slices that have a workflow.
CENSUS_EVERY = 40
#: Machines without a workflow are left alone for so many looks: one that was just started is not in the lists yet.
ORPHAN_LOOKS = 2
#: Telling owners of their placements: one signal each, a few milliseconds apiece.
TELL = timedelta(seconds=60)
#: Asking a thousand workflows what they hold; those that nobody remembers have to be replayed first.
CALL_ROLL = timedelta(minutes=5)
#: How far lists of workflows lag behind, generously.
LIST_LAG = timedelta(seconds=5)
#: How often the scheduler makes sure that those who hold or wait still exist; only while there are any.
CHECK_JOBS_EVERY = timedelta(seconds=60)
CHECK_JOBS = timedelta(seconds=60)
