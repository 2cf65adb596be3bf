package access

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	schedulepb "go.temporal.io/api/schedule/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// The fields that a request to start something may set. All others change who runs it, when, or
// what the server calls at its end; a field that a later version adds is not allowed either.
var (
	workflowFields = fields("namespace workflow_id workflow_type task_queue input workflow_execution_timeout workflow_run_timeout " +
		"workflow_task_timeout identity request_id workflow_id_reuse_policy workflow_id_conflict_policy memo search_attributes header " +
		"user_metadata priority")
	signalFields   = fields("signal_name signal_input")
	activityFields = fields("namespace identity request_id activity_id activity_type task_queue schedule_to_close_timeout " +
		"schedule_to_start_timeout start_to_close_timeout heartbeat_timeout retry_policy input id_reuse_policy id_conflict_policy header " +
		"user_metadata priority")
	createFields = fields("namespace schedule_id schedule initial_patch identity request_id memo search_attributes")
	updateFields = fields("namespace schedule_id schedule conflict_token identity request_id memo search_attributes")
)

// readsHeader is the header of a start with the id of another workflow, whose files the new one
// reads. Iris's workflows refuse an input with which they would read others.
const readsHeader = "iris-reads"

func startWorkflow(r *workflowservice.StartWorkflowExecutionRequest) []ask {
	start := startRequest{r, r.WorkflowId, r.TaskQueue, r.SearchAttributes, true}
	return []ask{{
		call: callStart, id: r.WorkflowId, name: r.GetWorkflowType().GetName(), named: true, detail: "start " + r.GetWorkflowType().GetName(),
		check: func(a *Access, p *policy, c *caller, o object) string { return start.check(p, c, o, workflowFields) },
	}}
}

func signalWithStart(r *workflowservice.SignalWithStartWorkflowExecutionRequest) []ask {
	start := startRequest{r, r.WorkflowId, r.TaskQueue, r.SearchAttributes, true}
	return []ask{
		{
			call: callStart, id: r.WorkflowId, name: r.GetWorkflowType().GetName(), named: true, detail: "start " + r.GetWorkflowType().GetName(),
			check: func(a *Access, p *policy, c *caller, o object) string {
				return start.check(p, c, o, workflowFields, signalFields)
			},
		},
		{call: callSignal, id: r.WorkflowId, name: r.SignalName, named: true, detail: "signal " + r.SignalName},
	}
}

func startActivity(r *workflowservice.StartActivityExecutionRequest) []ask {
	start := startRequest{r, r.ActivityId, r.TaskQueue, r.SearchAttributes, false}
	return []ask{{
		call: callActivity, id: r.ActivityId, name: r.GetActivityType().GetName(), named: true, detail: "start " + r.GetActivityType().GetName(),
		check: func(a *Access, p *policy, c *caller, o object) string { return start.check(p, c, o, activityFields) },
	}}
}

func createSchedule(r *workflowservice.CreateScheduleRequest) []ask {
	return schedule(r, "create schedule", r.ScheduleId, r.Schedule, r.SearchAttributes, createFields, true)
}

func updateSchedule(r *workflowservice.UpdateScheduleRequest) []ask {
	return schedule(r, "change schedule", r.ScheduleId, r.Schedule, r.SearchAttributes, updateFields, r.SearchAttributes != nil)
}

// schedule asks for a schedule, whose workflow the server starts itself, without a further call.
func schedule(r proto.Message, detail, id string, s *schedulepb.Schedule, attributes *commonpb.SearchAttributes, allowed map[protoreflect.Name]bool, checked bool) []ask {
	action := s.GetAction().GetStartWorkflow()
	name := action.GetWorkflowType().GetName()
	check := func(a *Access, p *policy, c *caller, o object) string {
		if !p.trusts(c) && !c.owns(o, id, "") {
			return "it would start another's jobs"
		}
		if action == nil || name == "" || action.WorkflowId != id {
			return "it starts no workflow with the id of the schedule"
		}
		if reason := onlyFields(r, allowed); reason != "" {
			return reason
		}
		if checked {
			if reason := p.checkAttributes(attributes, c, o); reason != "" {
				return reason
			}
		}
		return startRequest{action, id, action.TaskQueue, action.SearchAttributes, true}.check(p, c, o, workflowFields)
	}
	return []ask{{call: callSchedule, id: id, name: name, named: true, detail: detail, check: check}}
}

// startRequest is a request to start a workflow or an activity.
type startRequest struct {
	request    proto.Message
	id         string
	queue      *taskqueuepb.TaskQueue
	attributes *commonpb.SearchAttributes
	// isWorkflow says whether it has search attributes.
	isWorkflow bool
}

// check returns why the caller may not start it, or nothing.
func (s startRequest) check(p *policy, c *caller, o object, allowed ...map[protoreflect.Name]bool) string {
	if p.trusts(c) {
		return ""
	}
	if reason := onlyFields(s.request, allowed...); reason != "" {
		return reason
	}
	queue, ok := p.Rules.parse(s.queue.GetName())
	if !ok || s.queue.GetKind() > enumspb.TASK_QUEUE_KIND_NORMAL || s.queue.GetNormalName() != "" {
		return fmt.Sprintf("queue %q is not of the cluster", s.queue.GetName())
	}
	if queue.kind != p.Rules.Queues[o.kind] {
		return fmt.Sprintf("a %s does not start on queue %q", o.kind, s.queue.GetName())
	}
	if queue.owned && !c.owns(queue, "", "") && !p.allowsAny(c, callActivity, queue.kind) {
		return fmt.Sprintf("queue %q is another's", s.queue.GetName())
	}
	if header, ok := s.request.(interface{ GetHeader() *commonpb.Header }); ok {
		if id := header.GetHeader().GetFields()[readsHeader]; id != nil && !p.reads(c, keyword(id)) {
			return fmt.Sprintf("it would read files of %s, which is another's", withoutCluster(keyword(id)))
		}
	}
	if s.isWorkflow {
		return p.checkAttributes(s.attributes, c, o)
	}
	return ""
}

// checkAttributes returns why the search attributes are not those of a workflow or a schedule of
// the caller, or nothing.
func (p *policy) checkAttributes(found *commonpb.SearchAttributes, c *caller, o object) string {
	rules := p.Rules.Attributes
	required := map[string]string{rules.Kind: o.kind}
	for name, value := range rules.Fixed {
		required[name] = value
	}
	if o.owned {
		required[rules.User] = o.path[0]
	}
	if parent := found.GetIndexedFields()[rules.Parent]; parent != nil {
		if len(o.path) < 3 || keyword(parent) != strings.Join(o.path[:len(o.path)-1], "/") {
			return fmt.Sprintf("the search attribute %s is not of its parent", rules.Parent)
		}
	}
	for name, payload := range found.GetIndexedFields() {
		if name == rules.Parent || slices.Contains(rules.Free, name) {
			continue
		}
		want, known := required[name]
		if !known || keyword(payload) != want {
			return fmt.Sprintf("the search attribute %s is not that of the caller", name)
		}
		delete(required, name)
	}
	for name := range required {
		return fmt.Sprintf("the search attribute %s is missing", name)
	}
	return ""
}

// keyword returns the text of a search attribute, or a text that no attribute has.
func keyword(payload *commonpb.Payload) string {
	var text string
	if json.Unmarshal(payload.GetData(), &text) == nil {
		return text
	}
	var list []string // Temporal also accepts a list with one text
	if json.Unmarshal(payload.GetData(), &list) == nil && len(list) == 1 {
		return list[0]
	}
	return "\x00"
}

func fields(names string) map[protoreflect.Name]bool {
	found := map[protoreflect.Name]bool{}
	for _, name := range strings.Fields(names) {
		found[protoreflect.Name(name)] = true
	}
	return found
}

// onlyFields returns which field is set but not allowed, or nothing.
func onlyFields(message proto.Message, allowed ...map[protoreflect.Name]bool) string {
	reflected, reason := message.ProtoReflect(), ""
	if len(reflected.GetUnknown()) > 0 {
		return "it has fields that this server does not know"
	}
	reflected.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		for _, names := range allowed {
			if names[field.Name()] {
				return true
			}
		}
		if field.Message() != nil && !field.IsList() && !field.IsMap() && isEmpty(value.Message()) {
			return true // clients send some empty messages
		}
		reason = fmt.Sprintf("it sets %s", field.Name())
		return false
	})
	return reason
}

func isEmpty(message protoreflect.Message) bool {
	empty := len(message.GetUnknown()) == 0
	message.Range(func(protoreflect.FieldDescriptor, protoreflect.Value) bool {
		empty = false
		return false
	})
	return empty
}
