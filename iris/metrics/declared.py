"""All metrics of Iris. `docs/metrics.md` has the same table; a test compares both.

A name ends with its base unit, and a counter with `_total`. The values of labels come from code
(states, codes, kinds) or from the configuration (scale groups, zones, names of faults).
"""

from iris.metrics.kinds import Counter, Gauge, Histogram, Metric, Part

_CONTROL, _AGENT = Part.CONTROL_PLANE, Part.AGENT
#: The bounds of histogram buckets, in seconds, for calls that a program waits for.
_CALLS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60)
#: The bounds of histogram buckets, in seconds, for work that a person waits for.
_WORK = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000)

# -- the queue -------------------------------------------------------------------------------------

GANGS_WAITING = Gauge(
    _CONTROL,
    "iris_gangs_waiting",
    "Gangs that wait for hosts, by the code of the reason (docs/reference/reasons.md); NOT_COMPUTED"
    " for all but the fifty most frequent shapes, and for all while the scheduler recovers its"
    " ledger.",
    ("band", "reason"),
)
GANGS_RUNNING = Gauge(_CONTROL, "iris_gangs_running", "Gangs that have hosts.", ("band",))
GANGS_HELD = Gauge(_CONTROL, "iris_gangs_held", "Gangs that their users hold.", ("band",))
PLACEMENTS = Counter(
    _CONTROL,
    "iris_placements_total",
    "Placements that this process delivered to gangs: answer if the gang got hosts at once, signal"
    " if it had to wait.",
    ("delivery",),
)
EVICTIONS = Counter(
    _CONTROL,
    "iris_evictions_total",
    "Evictions, and notices that machines are gone, that this process delivered to gangs.",
)

# -- the scheduler ---------------------------------------------------------------------------------

PLANNER_ANSWERS = Gauge(
    _CONTROL,
    "iris_planner_answers",
    "1 if the scheduler or the autoscaler answered the last query, 0 if not; its other gauges are"
    " absent then.",
    ("planner",),
)
EXCHANGE_MESSAGES = Histogram(
    _CONTROL,
    "iris_exchange_messages",
    "Messages in one exchange with the scheduler.",
    buckets=(1, 2, 5, 10, 20, 50, 100, 200, 500),
)
EXCHANGE_DURATION = Histogram(
    _CONTROL,
    "iris_exchange_duration_seconds",
    "Round trip of one exchange with the scheduler, which includes a scheduling pass.",
    buckets=_CALLS,
)
EXCHANGE_FAILURES = Counter(
    _CONTROL,
    "iris_exchange_failures_total",
    "Exchanges that failed: unanswered ones are sent again, rejected ones are split or fail.",
    ("failure",),
)
SCHEDULER_REPLAY = Gauge(
    _CONTROL,
    "iris_scheduler_replay_looks",
    "Work that a replay of the scheduler's run repeats, in looks at a host.",
)
SCHEDULER_REPLAY_LIMIT = Gauge(
    _CONTROL,
    "iris_scheduler_replay_limit_looks",
    "Work after which the scheduler continues as new.",
)
LEDGER_SIZE = Gauge(
    _CONTROL, "iris_scheduler_ledger_bytes", "Upper bound of the size of the scheduler's ledger."
)
LEDGER_LIMIT = Gauge(
    _CONTROL,
    "iris_scheduler_ledger_limit_bytes",
    "Size of the ledger from which the scheduler refuses new requests.",
)
USES_STORED = Counter(
    _CONTROL, "iris_use_records_stored_total", "Records of use that this process has stored."
)
USES_WAITING = Gauge(
    _CONTROL,
    "iris_use_records_waiting",
    "Records of use that are not stored yet. They wait for 30 s at most while the store answers.",
)
USES_DROPPED = Gauge(
    _CONTROL,
    "iris_use_records_dropped",
    "Records of use that were lost since the store last answered, because too many wait.",
)
SCHEDULER_PAUSED = Gauge(
    _CONTROL, "iris_scheduler_paused", "1 while an operator has paused the cluster, else 0."
)
HOSTS = Gauge(
    _CONTROL,
    "iris_hosts",
    "Hosts in the scheduler's ledger: open ones, and closed ones by the cause. A paused group's"
    " hosts count as open; a host without a scale group has the group none.",
    ("group", "state"),
)

# -- slices and the cloud --------------------------------------------------------------------------

SLICES = Gauge(
    _CONTROL, "iris_slices", "Slices of the autoscaler, by state.", ("group", "zone", "state")
)
GROUP_DEMAND = Gauge(
    _CONTROL,
    "iris_group_demand_slices",
    "Slices that the waiting gangs need from a scale group.",
    ("group",),
)
GROUP_TARGET = Gauge(
    _CONTROL,
    "iris_group_target_slices",
    "Slices that the autoscaler wants a scale group to have.",
    ("group",),
)
GROUP_AVAILABILITY = Gauge(
    _CONTROL,
    "iris_group_availability",
    "1 for the present availability of a scale group, such as QUOTA_EXCEEDED.",
    ("group", "availability"),
)
ZONES_UNREACHABLE = Gauge(
    _CONTROL,
    "iris_zone_unreachable",
    "1 for a zone whose machines the platform could not list; * for all zones.",
    ("zone",),
)
UNOWNED_SLICES = Gauge(
    _CONTROL, "iris_slices_unowned", "Machines of the cluster that no workflow owns."
)
HELD_HOSTS = Gauge(
    _CONTROL,
    "iris_hosts_silent",
    "Silent hosts that do not count as lost, because most others do not answer either.",
)
AUTOSCALER_PAUSED = Gauge(
    _CONTROL, "iris_autoscaler_paused", "1 while an operator has paused the autoscaler, else 0."
)
PLATFORM_CALLS = Counter(
    _CONTROL,
    "iris_platform_calls_total",
    "Calls of the platform (create, describe, delete, output, list) by outcome: ok, or the kind of"
    " the refusal, such as STOCK_OUT, QUOTA, RATE_LIMITED, UNAVAILABLE.",
    ("call", "outcome"),
)
PLATFORM_CALL_DURATION = Histogram(
    _CONTROL,
    "iris_platform_call_duration_seconds",
    "Duration of calls of the platform.",
    ("call",),
    buckets=_CALLS,
)
PLATFORM_RETRIES = Counter(
    _CONTROL,
    "iris_platform_call_retries_total",
    "Calls of the platform that repeat a failed one.",
    ("call",),
)
GOOGLE_CALLS = Counter(
    _CONTROL,
    "iris_google_calls_total",
    "Requests to Google's APIs by urgency (delete, read, create) and answer: ok, not_found,"
    " rate_limited, no_answer, refused, or not_sent if too many waited for their turn.",
    ("urgency", "answer"),
)

# -- a host ----------------------------------------------------------------------------------------

ATTEMPTS = Gauge(
    _AGENT,
    "iris_attempts",
    "Attempts on the host, by the state of their lifecycle.",
    ("state",),
)
ATTEMPTS_ENDED = Counter(
    _AGENT,
    "iris_attempts_ended_total",
    "Attempts whose outcome the server accepted, by outcome, and by fault if the host or its"
    " surroundings are at fault.",
    ("outcome", "fault"),
)
ATTEMPTS_DROPPED = Counter(
    _AGENT,
    "iris_attempts_dropped_total",
    "Attempts that the agent ended because the server gave them up, or because there was no contact"
    " for a whole lease.",
    ("cause",),
)
SET_UP_DURATION = Histogram(
    _AGENT,
    "iris_attempt_setup_duration_seconds",
    "Time to prepare an attempt: files, environment, image. ready, or the side at fault.",
    ("result",),
    buckets=_WORK,
)
LEASE_LEFT = Gauge(
    _AGENT,
    "iris_lease_left_seconds",
    "Least time for which a running attempt may go on without contact; absent without attempts.",
)
LOG_BACKLOG = Gauge(
    _AGENT,
    "iris_log_backlog_bytes",
    "Output of attempts that is not in the store yet.",
)
LOG_FAILURES = Counter(
    _AGENT, "iris_log_store_failures_total", "Pieces of logs that the store did not take."
)
DISK_FREE = Gauge(
    _AGENT,
    "iris_disk_free_bytes",
    "Free space for the files of tasks: of the agent's directory, and of that of tasks with users"
    " of their own.",
    ("directory",),
)
DISK_SIZE = Gauge(_AGENT, "iris_disk_size_bytes", "Size of the same file systems.", ("directory",))
GPU_FAULT = Gauge(
    _AGENT,
    "iris_gpu_fault",
    "1 while the GPUs of the host have a fault, which quarantines it; absent without GPUs.",
)

#: All metrics, in the order of their declaration.
METRICS: tuple[Metric, ...] = tuple(
    each for each in list(globals().values()) if isinstance(each, Metric)
)
