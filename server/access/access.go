// Package access decides which calls of clients Temporal's server answers, by a policy that Python
// writes (iris/access).
//
// Start with access.go. identity.go finds out who calls, methods.go what a call asks for, rules.go
// whether the policy allows it; starts.go checks what is started, and answers.go removes from
// answers what the caller may not read.
package access

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/log"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// tokenMetadata is the metadata of a call with the token of an activity. A host sends it with its
// messages to the workflow of the activity.
const tokenMetadata = "iris-task-token-bin"

// Access is the authorizer and the claim mapper of the server.
type Access struct {
	policy *policyFile
	seals  *seals
	audit  *audit
	now    func() time.Time
}

// New returns the access control of the policy with this path.
func New(path string, logger log.Logger) (*Access, error) {
	file, err := openPolicy(path, logger)
	if err != nil {
		return nil, err
	}
	key := os.Getenv(keyVariable)
	if key == "" {
		key = path + ".key"
	}
	seals, err := openSeals(key)
	if err != nil {
		return nil, err
	}
	return &Access{file, seals, newAudit(), time.Now}, nil
}

// AuthInfoRequired makes the server call GetClaims also for calls without a token.
func (a *Access) AuthInfoRequired() bool { return false }

// GetClaims finds out who makes a call. Calls of unknown callers come to Authorize, too, which
// refuses and records them.
func (a *Access) GetClaims(info *authorization.AuthInfo) (*authorization.Claims, error) {
	found := a.policy.current.Load().identify(info, a.now())
	return &authorization.Claims{Subject: found.name, Extensions: found, AuthType: "iris"}, nil
}

// callerOf returns who makes the call; nil for Temporal's own calls by the internal frontend, which
// has a claim mapper of its own.
func callerOf(claims *authorization.Claims) *caller {
	if claims == nil {
		return &caller{refusal: "the call has no token"}
	}
	found, ok := claims.Extensions.(*caller)
	if !ok && claims.System != authorization.RoleAdmin {
		return &caller{refusal: "the call has no token"}
	}
	return found
}

// Authorize decides a call, and records it where the audit lists such calls.
func (a *Access) Authorize(ctx context.Context, claims *authorization.Claims, target *authorization.CallTarget) (authorization.Result, error) {
	if target.APIName == grpc_health_v1.Health_Check_FullMethodName {
		return authorization.Result{Decision: authorization.DecisionAllow}, nil
	}
	c := callerOf(claims)
	if c == nil {
		return authorization.Result{Decision: authorization.DecisionAllow}, nil
	}
	p := a.policy.current.Load()
	asks, reason := a.decide(ctx, p, c, target)
	if reason == "" && !(c.isPerson() && changes(asks)) {
		return authorization.Result{Decision: authorization.DecisionAllow}, nil
	}
	entry := line(ctx, c, target, asks, reason)
	err := a.audit.write(p.AuditDir, a.now(), entry)
	switch {
	case c.refusal != "":
		return denied, status.Error(codes.Unauthenticated, c.refusal)
	case reason != "":
		return denied, serviceerror.NewPermissionDenied(entry.message(), reason)
	case err != nil:
		return denied, serviceerror.NewUnavailable("the audit cannot be written: " + err.Error())
	}
	return authorization.Result{Decision: authorization.DecisionAllow}, nil
}

var denied = authorization.Result{Decision: authorization.DecisionDeny}

// decide returns what the call asks for, and why it is not allowed, or nothing.
func (a *Access) decide(ctx context.Context, p *policy, c *caller, target *authorization.CallTarget) ([]ask, string) {
	m := methods[target.APIName]
	if m == nil {
		return nil, orRefusal(c, "nobody may call this method")
	}
	asks := m(target.Request)
	if c.refusal != "" {
		return asks, c.refusal
	}
	if has, ok := target.Request.(interface{ GetNamespace() string }); ok && has.GetNamespace() != p.Namespace {
		return asks, fmt.Sprintf("the policy is for namespace %s", p.Namespace)
	}
	for _, each := range asks {
		if reason := a.allows(ctx, p, c, each); reason != "" {
			return asks, reason
		}
	}
	return asks, ""
}

func orRefusal(c *caller, reason string) string {
	if c.refusal != "" {
		return c.refusal
	}
	return reason
}

// allows returns why the caller may not do this, or nothing.
func (a *Access) allows(ctx context.Context, p *policy, c *caller, what ask) string {
	o := clusterObject
	if what.id != "" {
		found, ok := p.Rules.parse(what.id)
		if !ok {
			return fmt.Sprintf("%q is not an id of cluster %s", what.id, p.Cluster)
		}
		o = found
	}
	g := p.Rules.grants[c.role]
	if g == nil {
		return fmt.Sprintf("the policy has no rules for the role %s", c.role)
	}
	if what.named && what.name == "" {
		return "it names nothing"
	}
	name := c.asRule(what.name)
	if !what.byToken && !g.any.allows(what.call, o.kind, name) {
		if !g.own.allows(what.call, o.kind, name) {
			return fmt.Sprintf("%s is not for the role %s", strings.TrimSpace(what.call+" "+what.name), c.role)
		}
		if !c.owns(o, what.id, a.givenWorkflow(ctx, c)) {
			return "it is another's"
		}
	}
	if what.check != nil {
		return what.check(a, p, c, o)
	}
	return ""
}

// givenWorkflow returns the workflow of the activity whose token the caller shows.
func (a *Access) givenWorkflow(ctx context.Context, c *caller) string {
	if c.role != roleHost {
		return ""
	}
	shown := metadata.ValueFromIncomingContext(ctx, tokenMetadata)
	if len(shown) != 1 {
		return ""
	}
	workflow, _ := a.seals.openTask(c.name, []byte(shown[0]))
	return workflow
}

// trusts returns whether the caller may do all with all ids: it gets tasks and pages of histories
// without a seal, and its starts are not checked.
func (p *policy) trusts(c *caller) bool {
	g := p.Rules.grants[c.role]
	return c.refusal == "" && g != nil && g.any[all][all][all]
}

// allowsAny returns whether the role may do this with the ids of everybody.
func (p *policy) allowsAny(c *caller, call, kind string) bool {
	g := p.Rules.grants[c.role]
	return c.refusal == "" && g != nil && g.any.allows(call, kind, "")
}

// reads returns whether the caller may read what was given to the workflow, the schedule or the
// activity with this id.
func (p *policy) reads(c *caller, id string) bool {
	o, ok := p.Rules.parse(id)
	if !ok {
		return p.trusts(c)
	}
	g := p.Rules.grants[c.role]
	return g != nil && (g.any.allows(callInputs, o.kind, "") || g.own.allows(callInputs, o.kind, "") && c.owns(o, id, ""))
}

// changes returns whether what is asked for changes something.
func changes(asks []ask) bool {
	for _, each := range asks {
		switch each.call {
		case callRead, callInputs, callQuery, callList, callPoll, callWork:
		default:
			if each.detail != "" || each.call == callSetUp {
				return true
			}
		}
	}
	return false
}
