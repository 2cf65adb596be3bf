"""Defines every timeout and retry policy of the workflows, each with its reason."""

from datetime import timedelta

from temporalio.common import RetryPolicy

from iris.model.job.spec import JobSpec
from iris.model.rules import Contact

#: Temporal never retries an attempt by itself: workflow code decides which account pays for it and
#: where it runs next.
ONCE = RetryPolicy(maximum_attempts=1)

#: For calls that must succeed however long a service is away. Ten seconds between tries prevent a
#: stampede when an outage ends.
UNTIL_DONE = RetryPolicy(
    initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=10)
)

#: For observations that are repeated until there is news, each repetition an attempt: so the pause
#: after a failed one must not grow with the attempts.
UNTIL_NEWS = RetryPolicy(initial_interval=timedelta(seconds=2), backoff_coefficient=1)

#: For queries that can wait: without an answer they are repeated later, and other events are
#: handled meanwhile.
A_FEW_TIMES = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=3)

#: The shortest timer. A deadline that has passed starts one, too: whether there is a timer must not
#: depend on the clock, because that would change the history.
MOMENT = timedelta(milliseconds=1)

#: How long a job waits for a control plane that died with the job's workflow task: half of the
#: server's default. A task takes milliseconds, or two seconds when the scheduler answers slowly
#: (`EXCHANGE_QUICK`).
JOB_TASK = timedelta(seconds=5)
#: The same of an array in parts: a replay takes some milliseconds for each of up to two thousand
#: reports.
PARTS_TASK = timedelta(minutes=1)


def job_task(spec: JobSpec) -> timedelta:
    """Returns the longest workflow task of a job."""
    return (
        PARTS_TASK if spec.array is not None and spec.array.has_parts(spec.replicas) else JOB_TASK
    )


#: The longest task of the scheduler and the autoscaler. The longest ones are replays: those of the
#: scheduler are limited to a few seconds on an idle core. A worker that dies during a task holds
#: the workflow up for this long, so it is not longer.
PLANNER_TASK = timedelta(seconds=30)

#: The first try of an exchange, inside the workflow task. A longer one would hold a workflow-task
#: slot, and the heartbeat of the workflow task would run it again.
EXCHANGE_QUICK = timedelta(seconds=2)
#: Each further try, as a normal activity.
EXCHANGE_PATIENT = timedelta(seconds=30)

#: The pause before a gang asks again, when the scheduler has forgotten its attempt.
ASK_ANEW = timedelta(seconds=1)

#: The pause before a gang asks again, when the scheduler's ledger is full: doubled each time, up to
#: the maximum.
LEDGER_FULL = timedelta(seconds=30)
MAX_LEDGER_FULL = timedelta(minutes=16)

#: After this an attempt that no agent took from its host's queue is undelivered. An idle agent
#: polls all the time, so this is long.
SCHEDULE_TO_START = timedelta(seconds=60)
#: Without a heartbeat for this long, the server gives up an attempt with the default lease. 25 s
#: more than the lease: when the attempt can be started elsewhere, its program is dead, and even a
#: loaded control plane has lost its host.
HEARTBEAT = timedelta(seconds=75)
#: Added to an attempt's own limits. The agent itself ends an attempt that runs too long; the
#: server's timeout is only for agents that fail to.
TIMEOUT_MARGIN = timedelta(minutes=2)
#: For programs without a limit, because Temporal requires a number: ten years.
NO_TIMEOUT = timedelta(days=3650)

#: One call to the platform or to the server's list of workers.
OBSERVE = timedelta(seconds=20)
#: The longest wait for news of the fleet. Each end adds eleven events to the history.
LONGEST_WATCH = timedelta(hours=1)
#: One call to a platform. Some answer slowly. A repeated call finds what the first one has done,
#: because both use the same name.
PLATFORM_CALL = timedelta(seconds=60)
#: Reading the last output of machines. They are deleted afterwards, and cost money until then.
CONSOLE_OUTPUT = timedelta(seconds=30)
#: The pause between two checks whether machines are deleted: doubled each time, up to the maximum.
DELETE_CHECK = timedelta(milliseconds=200)
MAX_DELETE_CHECK = timedelta(seconds=30)
#: The pause between two checks whether the tasks of a slice that is taken back have ended: doubled
#: each time, up to the maximum.
LEAVING_CHECK = timedelta(milliseconds=500)
MAX_LEAVING_CHECK = timedelta(seconds=5)
#: How long an ending slice waits for the scheduler to remove its hosts, before it deletes its
#: machines anyway.
SCHEDULER_PATIENCE = timedelta(minutes=1)
#: Asking the scheduler for the demand.
QUERY_DEMAND = timedelta(seconds=10)
#: The shortest time between two evaluations; changes in between are evaluated together.
EVALUATE_EVERY = timedelta(seconds=1)
#: Observations from one census of the slices that have a workflow to the next.
CENSUS_EVERY = 40
#: Observations from one comparison of the READY slices with the scheduler's ledger to the next: a
#: minute.
LEDGER_CHECK_EVERY = 4
#: Machines without a workflow are left alone for this many observations: a workflow that has just
#: started is not in the lists yet.
ORPHAN_OBSERVATIONS = 2
#: Signalling the owners of placements: one signal each, a few milliseconds apiece.
SIGNAL_OWNERS = timedelta(seconds=60)
#: Querying a thousand workflows during recovery; those that are in no worker's cache have to be
#: replayed first.
RECOVERY_QUERIES = timedelta(minutes=5)
#: The first pause before a job looks again at the jobs that it waits for: doubled each time, up to
#: the maximum. They signal their ends, unless they are terminated; in a month of waiting this makes
#: some 8,000 events, and the workflow continues as new.
DEPENDENCY_CHECK = timedelta(minutes=1)
MAX_DEPENDENCY_CHECK = timedelta(hours=1)
#: Asking for the ends of the jobs that a job waits for: two calls for each, some at a time.
FIND_ENDS = timedelta(minutes=1)
#: An upper bound for the delay of workflow lists.
LIST_LAG = timedelta(seconds=5)
#: How often the scheduler checks that the owners of placements and requests still exist, while
#: there are any.
CHECK_JOBS_EVERY = timedelta(seconds=60)
CHECK_JOBS = timedelta(seconds=60)
#: The check for live children of jobs that have ended without success: a look at each parent.
CHECK_ORPHANS = timedelta(minutes=10)
#: Asking how a parent has ended, and signalling it: a few calls.
REGISTER = timedelta(seconds=30)

#: Deleting a few objects of the store at the end of a job, which waits for it.
DELETE_SECRETS = timedelta(seconds=10)
#: A call about the end of a job, from its start: more than the call's own limit.
NOTIFY = timedelta(seconds=30)
#: A service that is away for longer hears nothing of the job's end.
NOTIFY_WITHIN = timedelta(days=1)
#: Some 150 tries a day.
NOTIFY_AGAIN = RetryPolicy(
    initial_interval=timedelta(seconds=2), maximum_interval=timedelta(minutes=10)
)


def heartbeat_timeout(contact: Contact) -> timedelta:
    """Returns how long the server waits for a heartbeat of an attempt: `HEARTBEAT`, changed as its
    lease is.
    """
    return HEARTBEAT + timedelta(seconds=contact.lease - Contact().lease)
