package access

import (
	"fmt"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workerpb "go.temporal.io/api/worker/v1"
	"go.temporal.io/api/workflowservice/v1"
)

// ask is one thing that a call asks for. A call is allowed if all that it asks for is allowed.
type ask struct {
	call string
	// id is of a workflow, a schedule, an activity or a queue; empty for what is not of one id.
	id string
	// name is that of the type, the signal, the update or the query, if the call is about one: then
	// named is true, and the name must not be empty.
	name  string
	named bool
	// detail and why are for the audit.
	detail, why string
	// byToken says that the check proves what the rules would allow.
	byToken bool
	// check returns why the request is not allowed, or nothing. It may be nil.
	check func(*Access, *policy, *caller, object) string
}

// method returns what a request asks for.
type method func(request any) []ask

// never is a method that nobody may call.
var never method

// everybody is a method that all known callers may call.
func everybody(any) []ask { return nil }

// of makes a method from a function for its type of request. A request of another type, as another
// version of the server could have, is not allowed.
func of[R any](asks func(R) []ask) method {
	return func(request any) []ask {
		if typed, ok := request.(R); ok {
			return asks(typed)
		}
		return []ask{{call: "unknown"}}
	}
}

// onCluster is a method about the whole cluster.
func onCluster(call string) method {
	return func(any) []ask { return []ask{{call: call}} }
}

const (
	workflowService = "/temporal.api.workflowservice.v1.WorkflowService/"
	operatorService = "/temporal.api.operatorservice.v1.OperatorService/"
)

// methods has each method of the services that the frontend has for clients. What is not here is
// not allowed either (Temporal's admin service, Nexus); a test compares the table with the module.
var methods = table(map[string]map[string]method{
	workflowService: {
		// Workflows.
		"StartWorkflowExecution":           of(startWorkflow),
		"SignalWithStartWorkflowExecution": of(signalWithStart),
		"SignalWorkflowExecution": of(func(r *workflowservice.SignalWorkflowExecutionRequest) []ask {
			return []ask{{call: callSignal, id: r.GetWorkflowExecution().GetWorkflowId(), name: r.SignalName, named: true, detail: "signal " + r.SignalName}}
		}),
		"UpdateWorkflowExecution": of(func(r *workflowservice.UpdateWorkflowExecutionRequest) []ask {
			name := r.GetRequest().GetInput().GetName()
			return []ask{{call: callUpdate, id: r.GetWorkflowExecution().GetWorkflowId(), name: name, named: true, detail: "update " + name}}
		}),
		"PollWorkflowExecutionUpdate": of(func(r *workflowservice.PollWorkflowExecutionUpdateRequest) []ask {
			return []ask{{call: callUpdate, id: r.GetUpdateRef().GetWorkflowExecution().GetWorkflowId()}}
		}),
		"QueryWorkflow": of(func(r *workflowservice.QueryWorkflowRequest) []ask {
			name := r.GetQuery().GetQueryType()
			return []ask{{call: callQuery, id: r.GetExecution().GetWorkflowId(), name: name, named: true, detail: "query " + name}}
		}),
		"RequestCancelWorkflowExecution": of(func(r *workflowservice.RequestCancelWorkflowExecutionRequest) []ask {
			return []ask{{call: callCancel, id: r.GetWorkflowExecution().GetWorkflowId(), detail: "cancel", why: r.Reason}}
		}),
		"TerminateWorkflowExecution": of(func(r *workflowservice.TerminateWorkflowExecutionRequest) []ask {
			return []ask{{call: callTerminate, id: r.GetWorkflowExecution().GetWorkflowId(), detail: "terminate", why: r.Reason}}
		}),
		"DescribeWorkflowExecution": of(func(r *workflowservice.DescribeWorkflowExecutionRequest) []ask {
			return []ask{{call: callRead, id: r.GetExecution().GetWorkflowId()}}
		}),
		"GetWorkflowExecutionHistory": of(func(r *workflowservice.GetWorkflowExecutionHistoryRequest) []ask {
			call := callInputs
			if r.HistoryEventFilterType == enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT {
				call = callRead
			}
			id := r.GetExecution().GetWorkflowId()
			return []ask{{call: call, id: id, check: pageOf(id, r.NextPageToken)}}
		}),
		"GetWorkflowExecutionHistoryReverse": of(func(r *workflowservice.GetWorkflowExecutionHistoryReverseRequest) []ask {
			id := r.GetExecution().GetWorkflowId()
			return []ask{{call: callInputs, id: id, check: pageOf(id, r.NextPageToken)}}
		}),
		"ResetWorkflowExecution":         never, // would run the job again beside itself
		"DeleteWorkflowExecution":        never, // would delete what the audit refers to
		"ExecuteMultiOperation":          never,
		"UpdateWorkflowExecutionOptions": never,
		"PauseWorkflowExecution":         never,
		"UnpauseWorkflowExecution":       never,
		"StartBatchOperation":            never, // the server itself would make the calls
		"StopBatchOperation":             never,
		"DescribeBatchOperation":         never,
		"ListBatchOperations":            never,
		"CreateWorkflowRule":             never,
		"DescribeWorkflowRule":           never,
		"DeleteWorkflowRule":             never,
		"ListWorkflowRules":              never,
		"TriggerWorkflowRule":            never,

		// Lists, from which `Intercept` removes what the caller may not read.
		"ListOpenWorkflowExecutions":     onCluster(callList),
		"ListClosedWorkflowExecutions":   onCluster(callList),
		"ListWorkflowExecutions":         onCluster(callList),
		"ListArchivedWorkflowExecutions": never,
		"ScanWorkflowExecutions":         onCluster(callList),
		"CountWorkflowExecutions":        onCluster(callList),
		"ListSchedules":                  onCluster(callList),
		"CountSchedules":                 onCluster(callList),
		"ListActivityExecutions":         onCluster(callList),
		"CountActivityExecutions":        onCluster(callList),
		"ListWorkers":                    onCluster(callList),
		"DescribeWorker":                 onCluster(callList),
		"DescribeTaskQueue":              onCluster(callList),
		"ListTaskQueuePartitions":        onCluster(callList),
		"GetSearchAttributes":            onCluster(callList),

		// Schedules.
		"CreateSchedule": of(createSchedule),
		"UpdateSchedule": of(updateSchedule),
		"PatchSchedule": of(func(r *workflowservice.PatchScheduleRequest) []ask {
			return []ask{{call: callSchedule, id: r.ScheduleId, detail: "change schedule"}}
		}),
		"DeleteSchedule": of(func(r *workflowservice.DeleteScheduleRequest) []ask {
			return []ask{{call: callSchedule, id: r.ScheduleId, detail: "delete schedule"}}
		}),
		"DescribeSchedule": of(func(r *workflowservice.DescribeScheduleRequest) []ask {
			return []ask{{call: callRead, id: r.ScheduleId}}
		}),
		"ListScheduleMatchingTimes": of(func(r *workflowservice.ListScheduleMatchingTimesRequest) []ask {
			return []ask{{call: callRead, id: r.ScheduleId}}
		}),

		// Activities without a workflow.
		"StartActivityExecution": of(startActivity),
		"DescribeActivityExecution": of(func(r *workflowservice.DescribeActivityExecutionRequest) []ask {
			return []ask{{call: callInputs, id: r.ActivityId, check: withoutToken(r.LongPollToken)}}
		}),
		"PollActivityExecution": of(func(r *workflowservice.PollActivityExecutionRequest) []ask {
			return []ask{{call: callInputs, id: r.ActivityId}}
		}),
		"RequestCancelActivityExecution": of(func(r *workflowservice.RequestCancelActivityExecutionRequest) []ask {
			return []ask{{call: callActivity, id: r.ActivityId, detail: "cancel activity", why: r.Reason}}
		}),
		"TerminateActivityExecution": of(func(r *workflowservice.TerminateActivityExecutionRequest) []ask {
			return []ask{{call: callActivity, id: r.ActivityId, detail: "terminate activity", why: r.Reason}}
		}),
		"DeleteActivityExecution": never,

		// Workers of activities: hosts, workers of pools, control planes.
		"PollActivityTaskQueue": of(func(r *workflowservice.PollActivityTaskQueueRequest) []ask {
			return []ask{{call: callPoll, id: queueOf(r.TaskQueue)}}
		}),
		"RecordActivityTaskHeartbeat": of(func(r *workflowservice.RecordActivityTaskHeartbeatRequest) []ask {
			return givenTask(r.TaskToken)
		}),
		"RespondActivityTaskCompleted": of(func(r *workflowservice.RespondActivityTaskCompletedRequest) []ask {
			return givenTask(r.TaskToken)
		}),
		"RespondActivityTaskFailed": of(func(r *workflowservice.RespondActivityTaskFailedRequest) []ask {
			return givenTask(r.TaskToken)
		}),
		"RespondActivityTaskCanceled": of(func(r *workflowservice.RespondActivityTaskCanceledRequest) []ask {
			return givenTask(r.TaskToken)
		}),
		"RecordActivityTaskHeartbeatById":  never, // no token shows to whom the activity was given
		"RespondActivityTaskCompletedById": never,
		"RespondActivityTaskFailedById":    never,
		"RespondActivityTaskCanceledById":  never,
		"RecordWorkerHeartbeat": of(func(r *workflowservice.RecordWorkerHeartbeatRequest) []ask {
			return reports(r.WorkerHeartbeat)
		}),
		"ShutdownWorker":        of(shutDownWorker),
		"UpdateActivityOptions": never,
		"PauseActivity":         never,
		"UnpauseActivity":       never,
		"ResetActivity":         never,

		// Workers of workflows: control planes.
		"PollWorkflowTaskQueue": of(func(r *workflowservice.PollWorkflowTaskQueueRequest) []ask {
			return []ask{{call: callWork, id: queueOf(r.TaskQueue)}}
		}),
		"RespondWorkflowTaskCompleted": onCluster(callWork),
		"RespondWorkflowTaskFailed":    onCluster(callWork),
		"RespondQueryTaskCompleted":    onCluster(callWork),
		"ResetStickyTaskQueue":         onCluster(callWork),

		// Nexus, versions of workers, and settings of queues, which Iris does not use.
		"PollNexusTaskQueue":                           never,
		"RespondNexusTaskCompleted":                    never,
		"RespondNexusTaskFailed":                       never,
		"UpdateWorkerBuildIdCompatibility":             never,
		"GetWorkerBuildIdCompatibility":                never,
		"UpdateWorkerVersioningRules":                  never,
		"GetWorkerVersioningRules":                     never,
		"GetWorkerTaskReachability":                    never,
		"DescribeDeployment":                           never,
		"ListDeployments":                              never,
		"GetDeploymentReachability":                    never,
		"GetCurrentDeployment":                         never,
		"SetCurrentDeployment":                         never,
		"DescribeWorkerDeploymentVersion":              never,
		"DescribeWorkerDeployment":                     never,
		"SetWorkerDeploymentCurrentVersion":            never,
		"SetWorkerDeploymentRampingVersion":            never,
		"SetWorkerDeploymentManager":                   never,
		"CreateWorkerDeployment":                       never,
		"DeleteWorkerDeployment":                       never,
		"CreateWorkerDeploymentVersion":                never,
		"UpdateWorkerDeploymentVersionComputeConfig":   never,
		"ValidateWorkerDeploymentVersionComputeConfig": never,
		"DeleteWorkerDeploymentVersion":                never,
		"UpdateWorkerDeploymentVersionMetadata":        never,
		"ListWorkerDeployments":                        never,
		"UpdateTaskQueueConfig":                        never,
		"FetchWorkerConfig":                            never,
		"UpdateWorkerConfig":                           never,

		// The service and the namespace.
		"GetSystemInfo":     everybody,
		"GetClusterInfo":    everybody,
		"DescribeNamespace": of(describeNamespace),
		"ListNamespaces":    never,
		"RegisterNamespace": onCluster(callSetUp),
		"UpdateNamespace":   onCluster(callSetUp),
		// Deprecated by Temporal, without a use.
		"DeprecateNamespace": never,
	},
	operatorService: {
		"ListSearchAttributes":     of(func(*operatorservice.ListSearchAttributesRequest) []ask { return []ask{{call: callList}} }),
		"AddSearchAttributes":      onCluster(callSetUp),
		"RemoveSearchAttributes":   never,
		"DeleteNamespace":          never,
		"AddOrUpdateRemoteCluster": never,
		"RemoveRemoteCluster":      never,
		"ListClusters":             never,
		"GetNexusEndpoint":         never,
		"CreateNexusEndpoint":      never,
		"UpdateNexusEndpoint":      never,
		"DeleteNexusEndpoint":      never,
		"ListNexusEndpoints":       never,
	},
})

func table(services map[string]map[string]method) map[string]method {
	found := map[string]method{}
	for service, methods := range services {
		for name, m := range methods {
			found[service+name] = m
		}
	}
	return found
}

func withoutToken(token []byte) func(*Access, *policy, *caller, object) string {
	return func(*Access, *policy, *caller, object) string {
		if len(token) > 0 {
			return "a token of the server's memory is not accepted"
		}
		return ""
	}
}

// pageOf checks that the server gave this token of a page to the caller, for this workflow.
func pageOf(id string, page []byte) func(*Access, *policy, *caller, object) string {
	return func(a *Access, p *policy, c *caller, _ object) string {
		if p.trusts(c) {
			return ""
		}
		if _, ok := a.seals.openPage(c.name, id, page); !ok {
			return "the token of the page was not given to this caller"
		}
		return ""
	}
}

// queueOf returns the name of a queue; for the queue of one worker's cache, that of the queue that
// it belongs to.
func queueOf(queue *taskqueuepb.TaskQueue) string {
	if queue.GetKind() == enumspb.TASK_QUEUE_KIND_STICKY {
		return queue.GetNormalName()
	}
	return queue.GetName()
}

// givenTask is a call about a task that the caller was given. Its token is enough.
func givenTask(token []byte) []ask {
	return []ask{{call: callPoll, byToken: true, check: func(a *Access, p *policy, c *caller, _ object) string {
		if p.trusts(c) {
			return ""
		}
		if _, ok := a.seals.openTask(c.name, token); !ok {
			return "the task was not given to this caller"
		}
		return ""
	}}}
}

// reports asks for the reports of workers, from which the control plane concludes which hosts live.
func reports(heartbeats []*workerpb.WorkerHeartbeat) []ask {
	var asks []ask
	for _, each := range heartbeats {
		asks = append(asks, ask{call: callPoll, id: each.TaskQueue, check: identityOf(each.WorkerIdentity)})
	}
	return asks
}

func shutDownWorker(r *workflowservice.ShutdownWorkerRequest) []ask {
	asks := []ask{{call: callPoll, id: r.TaskQueue, check: identityOf(r.Identity)}}
	if r.WorkerHeartbeat != nil {
		asks = append(asks, reports([]*workerpb.WorkerHeartbeat{r.WorkerHeartbeat})...)
	}
	return asks
}

// identityOf checks that a host reports itself: a worker's identity is the host's id and its
// incarnation (names.worker_identity in Python).
func identityOf(identity string) func(*Access, *policy, *caller, object) string {
	return func(_ *Access, _ *policy, c *caller, _ object) string {
		if host, _, _ := strings.Cut(identity, "@"); c.role == roleHost && host != c.host {
			return fmt.Sprintf("worker %q is not the host's", identity)
		}
		return ""
	}
}

func describeNamespace(r *workflowservice.DescribeNamespaceRequest) []ask {
	if r.Id != "" {
		return []ask{{call: "unknown"}}
	}
	return nil
}
