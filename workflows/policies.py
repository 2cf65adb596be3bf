"""Defines every timeout and retry policy of the workflows, each with its reason."""

from datetime import timedelta

from temporalio.common import RetryPolicy

from iris.model.job.spec import JobSpec
from iris.model.rules import HEARTBEAT_TIMEOUT
from iris.planners import pacing

#: The retry policy for attempts of tasks. Temporal does not retry them: the workflow decides which
#: retry limit the attempt counts against, and where the next attempt runs.
ONCE = RetryPolicy(maximum_attempts=1)

#: The retry policy for calls that must succeed, however long a service does not answer. The pause
#: of ten seconds spreads the calls when an outage ends.
UNTIL_DONE = RetryPolicy(
    initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=10)
)

#: The retry policy for observations and checks that are repeated until they find something new.
#: Each repetition is an attempt of the activity, so the pause after a failed attempt must not grow
#: with the number of attempts.
UNTIL_NEWS = RetryPolicy(initial_interval=timedelta(seconds=2), backoff_coefficient=1)

#: The retry policy for queries that are repeated later if they are not answered. Meanwhile the
#: workflow handles other events.
A_FEW_TIMES = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=3)

#: The shortest timer, also for a deadline that has passed. Whether a timer is started must not
#: depend on the clock, because a replay would then issue other commands.
MOMENT = timedelta(milliseconds=1)

#: The time limit of a workflow task of a job, half of the server's default. If a control plane dies
#: during the task, the job waits this long for another one. A task takes milliseconds, or three
#: seconds when the scheduler answers slowly (`EXCHANGE_QUICK`).
JOB_TASK = timedelta(seconds=5)
#: The time limit of a workflow task of an array in parts: a replay takes some milliseconds for each
#: of up to two thousand reports.
PARTS_TASK = timedelta(minutes=1)


def job_task(spec: JobSpec) -> timedelta:
    """Returns the longest workflow task of a job."""
    return (
        PARTS_TASK if spec.array is not None and spec.array.has_parts(spec.replicas) else JOB_TASK
    )


#: The time limit of a workflow task of the scheduler or the autoscaler. The longest tasks are
#: replays, which take a few seconds on an idle core. A longer limit would delay the workflow after
#: a control plane has died during a task.
PLANNER_TASK = timedelta(seconds=30)

#: The time limit of the first try of an exchange with the scheduler, inside the workflow task. It
#: exceeds the delay of an answer by the outbox (`outbox.KEEP`, 2.5 s). A longer try would occupy a
#: workflow-task slot for longer. After 4 s (80 % of `JOB_TASK`), Temporal's SDK would begin another
#: task.
EXCHANGE_QUICK = timedelta(seconds=3)
#: The time limit of each further try of an exchange with the scheduler, as a normal activity.
EXCHANGE_PATIENT = timedelta(seconds=30)

#: The time in which an agent has to take an attempt from its host's queue. It is long enough,
#: because an idle agent always polls.
SCHEDULE_TO_START = timedelta(seconds=60)
#: The time without a heartbeat after which the server gives up a long activity of the control
#: plane. It is as long as for an attempt with the default lease; for other leases, see
#: `Contact.heartbeat_timeout`.
HEARTBEAT = HEARTBEAT_TIMEOUT
#: The time by which the server's timeout of an attempt exceeds the attempt's time limit. The agent
#: ends an attempt that runs too long. The server's timeout is for agents that fail to do so.
TIMEOUT_MARGIN = timedelta(minutes=2)
#: The timeout, ten years, of programs without a time limit. Temporal requires a timeout.
NO_TIMEOUT = timedelta(days=3650)

#: The time limit of one call to the platform or to the server's list of workers.
OBSERVE = timedelta(seconds=20)
#: The longest time of one activity that repeats an observation of the fleet, or a check of jobs,
#: until it finds something new. Each activity adds eleven events to its workflow's history.
LONGEST_WATCH = timedelta(hours=1)
#: The time limit of one call to a platform, which may answer slowly. A repeated call finds the
#: machines of the first one, because both use the same name.
PLATFORM_CALL = timedelta(seconds=60)
#: The time limit for reading the last output of machines. It is short, because the machines are
#: deleted afterwards and cost money until then.
CONSOLE_OUTPUT = timedelta(seconds=30)
#: The pause between two checks whether machines are deleted. It doubles each time, up to
#: `MAX_DELETE_CHECK`.
DELETE_CHECK = timedelta(milliseconds=200)
MAX_DELETE_CHECK = timedelta(seconds=30)
#: The pause between two checks whether the tasks of a preempted slice have ended. It doubles each
#: time, up to `MAX_LEAVING_CHECK`.
LEAVING_CHECK = timedelta(milliseconds=500)
MAX_LEAVING_CHECK = timedelta(seconds=5)
#: How long an ending slice waits for the scheduler to remove its hosts, before it deletes its
#: machines anyway.
SCHEDULER_PATIENCE = timedelta(minutes=1)
#: The time limit of the query with which the autoscaler asks the scheduler for the demand.
QUERY_DEMAND = timedelta(seconds=10)
#: The shortest time between two evaluations of the autoscaler. The simulation uses the same value.
EVALUATE_EVERY = pacing.EVALUATE_EVERY
#: Once in this many observations of the fleet, the observation includes a census: a list of all
#: slices that have a workflow.
CENSUS_EVERY = 40
#: Once in this many observations of the fleet, which is once a minute, the READY slices are
#: compared with the scheduler's ledger.
LEDGER_CHECK_EVERY = 4
#: The number of observations in a row after which machines without a workflow are adopted. One is
#: not enough: a workflow that has just started is not in the lists yet.
ORPHAN_OBSERVATIONS = 2
#: The time limit for signalling the owners of placements. Each owner takes a few milliseconds, and
#: the activity itself gives up owners that do not answer, at the latest after `BATCH_PATIENCE`.
SIGNAL_OWNERS = timedelta(seconds=20)
#: After one to two times this long without a control plane's confirmation, the scheduler signals
#: placements itself. A confirmation takes up to two seconds, or 17 s if owners do not answer. If
#: it comes too late, owners get a signal twice and ignore the second one.
CONFIRM_SIGNALS = timedelta(seconds=10)
#: How long a run of the scheduler that has to end waits for signals that are under way. The next
#: run sends the signals that were not sent by then. A receiver ignores a signal that it gets twice.
LAST_SIGNALS = timedelta(seconds=3)
#: The time limit for querying a thousand workflows during recovery. A workflow that is in no
#: worker's cache has to be replayed first.
RECOVERY_QUERIES = timedelta(minutes=5)
#: The pause before a job asks again whether the jobs that it waits for have ended. It doubles each
#: time, up to `MAX_DEPENDENCY_CHECK`. Those jobs also signal their ends, unless they are
#: terminated. A month of waiting adds some 8,000 events, so the workflow continues as new.
DEPENDENCY_CHECK = timedelta(minutes=1)
MAX_DEPENDENCY_CHECK = timedelta(hours=1)
#: The time limit for asking whether the jobs that a job waits for have ended. Each of them takes
#: two calls.
FIND_ENDS = timedelta(minutes=1)
#: The longest time until the Temporal service's lists of workflows show that a workflow has started
#: or ended.
LIST_LAG = timedelta(seconds=5)
#: The interval at which the scheduler checks that the owners of placements and requests still
#: exist. It checks only while there are any placements or requests.
CHECK_JOBS_EVERY = timedelta(seconds=60)
#: The time limit of one check that the owners of placements and requests still exist.
CHECK_JOBS = timedelta(seconds=60)
#: The time limit of the check for running children of jobs that have ended without success. Each
#: parent takes one call.
CHECK_ORPHANS = timedelta(minutes=10)
#: The time limit of the activity that asks whether a child job's parent has ended, and how, and
#: signals the start of the child to a parent that still runs. This takes a few calls.
REGISTER = timedelta(seconds=30)

#: How long a record of use waits at most before it is stored. A scheduler that is terminated loses
#: the records that wait. Each batch adds eleven events to the history of a quiet scheduler.
STORE_USES_AFTER = timedelta(seconds=30)
#: The time limit of one try to store a batch of records: one small object, or a few. If a control
#: plane dies meanwhile, another one tries after this time.
STORE_USES = timedelta(seconds=20)

#: The time limit for deleting a few objects of the store at the end of a job. The job waits for it.
DELETE_SECRETS = timedelta(seconds=10)
#: The time limit of the activity that calls a webhook. It is longer than the limit of the call
#: itself.
NOTIFY = timedelta(seconds=30)
#: The time in which a webhook has to accept the message about a job's end.
NOTIFY_WITHIN = timedelta(days=1)
#: The pauses between repeated calls of a webhook that has not accepted a message: some 150 calls
#: within `NOTIFY_WITHIN`.
NOTIFY_AGAIN = RetryPolicy(
    initial_interval=timedelta(seconds=2), maximum_interval=timedelta(minutes=10)
)
