package access

import (
	"context"
	"maps"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	namespacepb "go.temporal.io/api/namespace/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/server/common/authorization"
	"google.golang.org/grpc"
)

// Intercept changes requests and answers of calls that Authorize has allowed: it seals tasks and
// pages for the caller, and removes what the caller may not read.
func (a *Access) Intercept(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	claims, _ := ctx.Value(authorization.MappedClaims).(*authorization.Claims)
	c := callerOf(claims)
	if c == nil {
		return handler(ctx, request)
	}
	p := a.policy.current.Load()
	if _, ok := request.(*workflowservice.DescribeNamespaceRequest); !ok && p.trusts(c) {
		return handler(ctx, request)
	}
	opened := true
	switch r := request.(type) {
	case *workflowservice.GetWorkflowExecutionHistoryRequest:
		r.NextPageToken, opened = a.seals.openPage(c.name, r.GetExecution().GetWorkflowId(), r.NextPageToken)
	case *workflowservice.GetWorkflowExecutionHistoryReverseRequest:
		r.NextPageToken, opened = a.seals.openPage(c.name, r.GetExecution().GetWorkflowId(), r.NextPageToken)
	}
	if !opened { // the policy has changed since Authorize
		return nil, serviceerror.NewPermissionDenied(authorization.RequestUnauthorized, "the token of the page was not given to this caller")
	}
	answer, err := handler(ctx, request)
	if err != nil {
		return answer, err
	}
	return answer, a.limit(p, c, request, answer)
}

// limit changes an answer to what the caller may read.
func (a *Access) limit(p *policy, c *caller, request, answer any) error {
	switch r := answer.(type) {
	case *workflowservice.DescribeNamespaceResponse:
		tellCaller(c, r.GetNamespaceInfo())
	case *workflowservice.PollActivityTaskQueueResponse:
		if len(r.TaskToken) > 0 {
			r.TaskToken = a.seals.sealTask(c.name, r.TaskToken)
		}
	case *workflowservice.GetWorkflowExecutionHistoryResponse:
		id := request.(*workflowservice.GetWorkflowExecutionHistoryRequest).GetExecution().GetWorkflowId()
		r.NextPageToken = a.seals.sealPage(c.name, id, r.NextPageToken)
		if !p.reads(c, id) {
			if len(r.RawHistory) > 0 {
				return serviceerror.NewPermissionDenied(authorization.RequestUnauthorized, "the history is not in a form from which inputs can be removed")
			}
			r.History = lastEvents(r.History)
		}
	case *workflowservice.GetWorkflowExecutionHistoryReverseResponse:
		id := request.(*workflowservice.GetWorkflowExecutionHistoryReverseRequest).GetExecution().GetWorkflowId()
		r.NextPageToken = a.seals.sealPage(c.name, id, r.NextPageToken)
	case *workflowservice.DescribeWorkflowExecutionResponse:
		if !p.reads(c, r.GetWorkflowExecutionInfo().GetExecution().GetWorkflowId()) {
			if r.ExecutionConfig != nil {
				r.ExecutionConfig.UserMetadata = nil
			}
			r.Callbacks, r.PendingNexusOperations = nil, nil
			p.hideMemos(c, r.WorkflowExecutionInfo)
		}
	case *workflowservice.ListWorkflowExecutionsResponse:
		p.hideMemos(c, r.Executions...)
	case *workflowservice.ListOpenWorkflowExecutionsResponse:
		p.hideMemos(c, r.Executions...)
	case *workflowservice.ListClosedWorkflowExecutionsResponse:
		p.hideMemos(c, r.Executions...)
	case *workflowservice.ScanWorkflowExecutionsResponse:
		p.hideMemos(c, r.Executions...)
	case *workflowservice.DescribeScheduleResponse:
		if !p.reads(c, request.(*workflowservice.DescribeScheduleRequest).ScheduleId) {
			r.Memo = p.public(r.Memo)
			if action := r.GetSchedule().GetAction().GetStartWorkflow(); action != nil {
				action.Input, action.Memo, action.Header, action.UserMetadata = nil, nil, nil, nil
			}
		}
	case *workflowservice.ListWorkersResponse:
		// With the key of another worker, a caller could report or stop that worker.
		for _, each := range r.GetWorkersInfo() {
			if each.WorkerHeartbeat != nil {
				each.WorkerHeartbeat.WorkerInstanceKey = ""
			}
		}
		for _, each := range r.GetWorkers() {
			each.WorkerInstanceKey = ""
		}
	case *workflowservice.ListSchedulesResponse:
		for _, each := range r.Schedules {
			if !p.reads(c, each.ScheduleId) {
				each.Memo = p.public(each.Memo)
			}
		}
	}
	return nil
}

// The entries of a namespace's data in which the server tells callers who they are.
const (
	nameEntry = "iris_name"
	roleEntry = "iris_role"
)

func tellCaller(c *caller, info *namespacepb.NamespaceInfo) {
	if info != nil {
		data := maps.Clone(info.Data) // the server may share it
		if data == nil {
			data = map[string]string{}
		}
		data[nameEntry], data[roleEntry] = c.name, c.role
		info.Data = data
	}
}

func (p *policy) hideMemos(c *caller, executions ...*workflowpb.WorkflowExecutionInfo) {
	for _, each := range executions {
		if !p.reads(c, each.GetExecution().GetWorkflowId()) {
			each.Memo = p.public(each.Memo)
		}
	}
}

// public returns the part of a memo that everyone may read.
func (p *policy) public(memo *commonpb.Memo) *commonpb.Memo {
	found := &commonpb.Memo{Fields: map[string]*commonpb.Payload{}}
	for key, value := range memo.GetFields() {
		if p.Rules.public[key] {
			found.Fields[key] = value
		}
	}
	return found
}

// lastEvents returns how a workflow has ended, without what it was given.
func lastEvents(history *historypb.History) *historypb.History {
	found := &historypb.History{}
	for _, event := range history.GetEvents() {
		event.UserMetadata, event.Links = nil, nil
		switch event.EventType {
		case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
			enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED,
			enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
		case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
			next := event.GetWorkflowExecutionContinuedAsNewEventAttributes()
			next.Input, next.Header, next.Memo, next.LastCompletionResult = nil, nil, nil, nil
		default:
			continue
		}
		found.Events = append(found.Events, event)
	}
	return found
}
