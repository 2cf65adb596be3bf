package access

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509/pkix"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/operatorservice/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/log/tag"
	"go.temporal.io/server/common/metrics"
	"google.golang.org/grpc"
)

// The rules of these tests have few names; Python writes those of Iris (iris/access/rules.py).
const someRules = `{
	"kinds": {"job": {"prefix": "lab/job/", "owned": true}, "schedule": {"prefix": "lab/schedule/", "owned": true, "timed": true},
		"host": {"prefix": "lab/host/"}, "control": {"id": "lab/control"}, "scheduler": {"id": "lab/scheduler"}},
	"roles": {
		"viewer": {"any": {"list": {"cluster": ["*"]}}},
		"user": {"any": {"read": {"job": ["*"]}, "list": {"cluster": ["*"]}},
			"own": {"start": {"job": ["JobWorkflow"]}, "signal": {"job": ["hold"]}, "inputs": {"job": ["*"]}}},
		"operator": {"any": {"inputs": {"job": ["*"]}}, "own": {"start": {"job": ["JobWorkflow"]}}},
		"host": {"any": {"signal": {"scheduler": ["vacate/{host}"]}}, "own": {"poll": {"host": ["*"]}}},
		"control-plane": {"any": {"*": {"*": ["*"]}}}},
	"queues": {"job": "control"},
	"attributes": {"fixed": {"IrisCluster": "lab"}, "kind": "IrisKind", "user": "IrisUser", "free": ["IrisState"]},
	"public_memo": []}`

type signer struct {
	name, role string
	key        ed25519.PrivateKey
}

func newSigner(t testing.TB, name, role string) signer {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return signer{name, role, key}
}

func (s signer) jwk() jose.JSONWebKey { return jose.JSONWebKey{Key: s.key.Public()} }

func (s signer) token(t testing.TB) string {
	jwk := s.jwk()
	id, err := thumbprint(&jwk)
	if err != nil {
		t.Fatal(err)
	}
	signs, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: s.key}, (&jose.SignerOptions{}).WithHeader("kid", id))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	said := jwt.Claims{
		Issuer: issuerIris, Subject: s.name, Audience: jwt.Audience{"lab"},
		IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(maxLife)),
	}
	token, err := jwt.Signed(signs).Claims(said).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// writePolicy writes a policy with these people; `other` replaces fields.
func writePolicy(t testing.TB, path string, other map[string]any, people ...signer) {
	fields := map[string]any{
		"version": 1, "cluster": "lab", "namespace": "default", "audit_dir": filepath.Join(filepath.Dir(path), "audit"),
		"rules": json.RawMessage(someRules),
	}
	var entries []entry
	for _, each := range people {
		entries = append(entries, entry{Name: each.name, Role: each.role, Keys: []jose.JSONWebKey{each.jwk()}})
	}
	fields["principals"] = entries
	for key, value := range other {
		fields[key] = value
	}
	data, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func newTestAccess(t testing.TB, other map[string]any, people ...signer) *Access {
	path := filepath.Join(t.TempDir(), "policy.json")
	writePolicy(t, path, other, people...)
	a, err := New(path, log.NewNoopLogger())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// call returns why a call is refused, or nothing.
func call(t testing.TB, a *Access, info *authorization.AuthInfo, api string, request any) string {
	claims, err := a.GetClaims(info)
	if err != nil {
		t.Fatal(err)
	}
	result, err := a.Authorize(context.Background(), claims, &authorization.CallTarget{APIName: api, Namespace: "default", Request: request})
	switch {
	case err != nil && result.Decision == authorization.DecisionDeny:
		return err.Error()
	case err == nil && result.Decision == authorization.DecisionAllow:
		return ""
	}
	t.Fatalf("the decision is %v, and the error %v", result.Decision, err)
	return ""
}

func bearer(token string) *authorization.AuthInfo {
	return &authorization.AuthInfo{AuthToken: "Bearer " + token}
}

func signal(id, name string) *workflowservice.SignalWorkflowExecutionRequest {
	return &workflowservice.SignalWorkflowExecutionRequest{
		Namespace: "default", WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: id}, SignalName: name,
	}
}

const signalMethod = workflowService + "SignalWorkflowExecution"

// A method that a later version of the server adds would be refused, and nobody would know why.
func TestEachMethodOfTheServerIsInTheTable(t *testing.T) {
	known := map[string]bool{}
	for _, service := range []grpc.ServiceDesc{workflowservice.WorkflowService_ServiceDesc, operatorservice.OperatorService_ServiceDesc} {
		for _, each := range service.Methods {
			name := "/" + service.ServiceName + "/" + each.MethodName
			known[name] = true
			if _, ok := methods[name]; !ok {
				t.Errorf("%s is not in the table", name)
			}
		}
		if len(service.Streams) > 0 {
			t.Errorf("%s has streams, which have no request to check", service.ServiceName)
		}
	}
	for name := range methods {
		if !known[name] {
			t.Errorf("%s is in the table, and not in the server", name)
		}
	}
}

// A method outside of the table is refused for everybody, as are requests of another type.
func TestWhatIsNotKnownIsRefused(t *testing.T) {
	cp := newSigner(t, "cp", roleControlPlane)
	a := newTestAccess(t, nil, cp)
	info := bearer(cp.token(t))
	for _, name := range []string{
		"/temporal.server.api.adminservice.v1.AdminService/DescribeMutableState", "/temporal.api.nexusservice.v1.NexusService/DispatchNexusTask",
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", workflowService + "Later",
	} {
		if call(t, a, info, name, nil) == "" {
			t.Errorf("%s is allowed", name)
		}
	}
	if call(t, a, info, signalMethod, signal("lab/job/ada/x", "hold")) != "" {
		t.Error("the control plane may not signal")
	}
	ada := newSigner(t, "ada", "user")
	b := newTestAccess(t, nil, ada)
	if call(t, b, bearer(ada.token(t)), signalMethod, &workflowservice.StartWorkflowExecutionRequest{Namespace: "default"}) == "" {
		t.Error("a request of another type is allowed")
	}
}

// The server's own calls come by the internal frontend, whose claims nobody else gets.
func TestOnlyTheInternalFrontendIsTrustedWithoutAToken(t *testing.T) {
	a := newTestAccess(t, nil)
	target := &authorization.CallTarget{APIName: workflowService + "StartBatchOperation"}
	internal, _ := authorization.NewInternalClaimMapper().GetClaims(nil)
	if result, err := a.Authorize(context.Background(), internal, target); err != nil || result.Decision != authorization.DecisionAllow {
		t.Error("the server may not call itself")
	}
	for _, claims := range []*authorization.Claims{nil, {}, {Subject: "internal", AuthType: "temporal"}} {
		if result, _ := a.Authorize(context.Background(), claims, target); result.Decision != authorization.DecisionDeny {
			t.Errorf("%v is allowed", claims)
		}
	}
	health := &authorization.CallTarget{APIName: "/grpc.health.v1.Health/Check"}
	if result, _ := a.Authorize(context.Background(), nil, health); result.Decision != authorization.DecisionAllow {
		t.Error("health checks are not allowed")
	}
}

// A client certificate counts if the call has no token, by its common name alone.
func TestCertificatesAreKnownByTheirCommonName(t *testing.T) {
	a := newTestAccess(t, map[string]any{"certificates": map[string]certificate{"ada.lab": {"ada", "user"}}})
	hold := signal("lab/job/ada/x", "hold")
	for name, allowed := range map[string]bool{"ada.lab": true, "ada": false, "": false} {
		info := &authorization.AuthInfo{TLSSubject: &pkix.Name{CommonName: name}}
		if found := call(t, a, info, signalMethod, hold) == ""; found != allowed {
			t.Errorf("certificate %q: %v", name, found)
		}
	}
	both := &authorization.AuthInfo{TLSSubject: &pkix.Name{CommonName: "ada.lab"}, AuthToken: "Bearer wrong"}
	if call(t, a, both, signalMethod, hold) == "" {
		t.Error("a wrong token is as good as none")
	}
}

// Tokens of another issuer count for its users, if they are signed by its key, for this audience.
func TestTokensOfAnIssuerNameItsUsers(t *testing.T) {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	other, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fetches := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fetches++
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k1", Algorithm: "ES256", Use: "sig"}}})
	}))
	defer server.Close()
	a := newTestAccess(t, map[string]any{"issuers": []map[string]any{{
		"issuer": "https://id.lab", "jwks_uri": server.URL, "audience": "iris-lab", "users": map[string]certificate{"ada@lab": {"ada", "user"}},
	}}})
	token := func(key *ecdsa.PrivateKey, id string, change map[string]any) string {
		signs, _ := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", id))
		said := map[string]any{"iss": "https://id.lab", "aud": "iris-lab", "exp": time.Now().Add(time.Hour).Unix(), "email": "ada@lab", "email_verified": true}
		for name, value := range change {
			said[name] = value
		}
		text, _ := jwt.Signed(signs).Claims(said).Serialize()
		return text
	}
	hold := signal("lab/job/ada/x", "hold")
	if reason := call(t, a, bearer(token(key, "k1", nil)), signalMethod, hold); reason != "" {
		t.Error(reason)
	}
	for name, wrong := range map[string]string{
		"another key":      token(other, "k1", nil),
		"an unknown key":   token(other, "k2", nil),
		"another audience": token(key, "k1", map[string]any{"aud": "else"}),
		"expired":          token(key, "k1", map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}),
		"without an end":   token(key, "k1", map[string]any{"exp": nil}),
		"an unknown user":  token(key, "k1", map[string]any{"email": "eve@lab"}),
		"not verified":     token(key, "k1", map[string]any{"email_verified": false}),
		"another issuer":   token(key, "k1", map[string]any{"iss": "https://else"}),
		"Iris's issuer":    token(key, "k1", map[string]any{"iss": "iris", "sub": "ada", "aud": "lab"}),
	} {
		if call(t, a, bearer(wrong), signalMethod, hold) == "" {
			t.Errorf("%s is accepted", name)
		}
	}
	if fetches != 1 {
		t.Errorf("the keys were fetched %d times: strangers can make the server fetch them", fetches)
	}
}

// A version of the policy that cannot be read leaves the last one in force.
func TestAnInvalidPolicyIsIgnored(t *testing.T) {
	ada := newSigner(t, "ada", "user")
	a := newTestAccess(t, nil, ada)
	hold, info := signal("lab/job/ada/x", "hold"), bearer(ada.token(t))
	path := a.policy.path
	for _, wrong := range []string{"", "{", `{"version": 2}`, `{"version": 1, "cluster": "lab", "namespace": "default"}`} {
		if err := os.WriteFile(path, []byte(wrong), 0o600); err != nil {
			t.Fatal(err)
		}
		a.policy.reload()
		if reason := call(t, a, info, signalMethod, hold); reason != "" {
			t.Errorf("%q: %s", wrong, reason)
		}
		if _, err := New(path, log.NewNoopLogger()); err == nil {
			t.Errorf("a server starts with %q", wrong)
		}
	}
	writePolicy(t, path, nil)
	a.policy.reload()
	if call(t, a, info, signalMethod, hold) == "" {
		t.Error("the new policy, without ada, is not in force")
	}
}

// Names and keys that would be somebody else's make a policy invalid.
func TestAPolicyNamesEverybodyOnce(t *testing.T) {
	ada := newSigner(t, "ada", "user")
	twin := signer{"bob", "user", ada.key}
	for name, people := range map[string][]signer{
		"one key of two": {ada, twin}, "a person as a host": {newSigner(t, "host/h", "user")}, "a host as a person": {newSigner(t, "h", roleHost)},
		"a path as a name": {newSigner(t, "../ada", "user")}, "no name": {newSigner(t, "", "user")},
	} {
		path := filepath.Join(t.TempDir(), "policy.json")
		writePolicy(t, path, nil, people...)
		if _, err := readPolicy(path); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// Servers that share clients need one key of seals, also if they start together.
func TestServersThatStartTogetherMakeOneKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	found := make(chan string)
	for range 8 {
		go func() {
			s, err := openSeals(path)
			if err != nil {
				found <- err.Error()
				return
			}
			found <- string(s.key)
		}()
	}
	first := <-found
	for range 7 {
		if next := <-found; next != first || len(next) != keySize {
			t.Fatalf("%q is not %q", next, first)
		}
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("others may read the key: %v", info.Mode())
	}
}

// If a change cannot be recorded, it is not made. A read is not recorded.
func TestWithoutAnAuditNothingChanges(t *testing.T) {
	ada := newSigner(t, "ada", "user")
	blocked := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a := newTestAccess(t, map[string]any{"audit_dir": blocked}, ada)
	if reason := call(t, a, bearer(ada.token(t)), signalMethod, signal("lab/job/ada/x", "hold")); !strings.Contains(reason, "audit") {
		t.Errorf("the signal is allowed: %q", reason)
	}
	list := &workflowservice.ListWorkflowExecutionsRequest{Namespace: "default"}
	if reason := call(t, a, bearer(ada.token(t)), workflowService+"ListWorkflowExecutions", list); reason != "" {
		t.Error(reason)
	}
}

// The workflows that a schedule starts have the time in their ids.
func TestIdsHaveOneReading(t *testing.T) {
	r := &rules{}
	if err := json.Unmarshal([]byte(someRules), r); err != nil {
		t.Fatal(err)
	}
	if err := r.compile(); err != nil {
		t.Fatal(err)
	}
	for id, path := range map[string]string{
		"lab/job/ada/train": "ada train", "lab/job/ada/train/child": "ada train child", "lab/job/ada/train:3": "ada train",
		"lab/schedule/ada/x-2026-11-28T20:58:31Z": "ada x", "lab/host/h-w-0": "h-w-0", "lab/control": "",
		"lab/job/ada/x-2026-11-28T20:58:31Z": "-", "lab/schedule/ada/x-2026-11-28T20:58:61Z": "-", "lab/job/ada": "-", "lab/job/ada/..": "-",
		"lab/control/x": "-", "other/job/ada/x": "-", "lab/job/ada/x:": "-", "lab/host/h:1": "-", "": "-",
	} {
		o, ok := r.parse(id)
		if found := strings.Join(o.path, " "); ok != (path != "-") || ok && found != path {
			t.Errorf("%q is %q (%v)", id, found, ok)
		}
	}
}

// Of a history, a caller who may not read inputs gets how each run has ended, and no inputs.
func TestTheEndOfAHistoryHasNoInputs(t *testing.T) {
	a := newTestAccess(t, nil)
	p := a.policy.current.Load()
	bob, _ := newCaller("bob", "user", "")
	ada, _ := newCaller("ada", "user", "")
	secret := &commonpb.Payloads{Payloads: []*commonpb.Payload{{Data: []byte("secret")}}}
	history := func() *workflowservice.GetWorkflowExecutionHistoryResponse {
		return &workflowservice.GetWorkflowExecutionHistoryResponse{NextPageToken: []byte("branch"), History: &historypb.History{Events: []*historypb.HistoryEvent{
			{EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED, Attributes: &historypb.HistoryEvent_WorkflowExecutionStartedEventAttributes{
				WorkflowExecutionStartedEventAttributes: &historypb.WorkflowExecutionStartedEventAttributes{Input: secret}}},
			{EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW, Attributes: &historypb.HistoryEvent_WorkflowExecutionContinuedAsNewEventAttributes{
				WorkflowExecutionContinuedAsNewEventAttributes: &historypb.WorkflowExecutionContinuedAsNewEventAttributes{
					Input: secret, LastCompletionResult: secret, NewExecutionRunId: "next", Memo: &commonpb.Memo{Fields: map[string]*commonpb.Payload{"x": secret.Payloads[0]}},
					Header: &commonpb.Header{Fields: map[string]*commonpb.Payload{"x": secret.Payloads[0]}}}}},
		}}}
	}
	request := &workflowservice.GetWorkflowExecutionHistoryRequest{Execution: &commonpb.WorkflowExecution{WorkflowId: "lab/job/ada/x"}}
	for c, sees := range map[*caller]bool{ada: true, bob: false} {
		answer := history()
		if err := a.limit(p, c, request, answer); err != nil {
			t.Fatal(err)
		}
		if found := strings.Contains(answer.String(), "secret"); found != sees {
			t.Errorf("%s sees: %s", c.name, answer)
		}
		if !strings.Contains(answer.String(), "next") {
			t.Errorf("%s does not see the next run: %s", c.name, answer)
		}
		if page, ok := a.seals.openPage(c.name, "lab/job/ada/x", answer.NextPageToken); !ok || string(page) != "branch" {
			t.Errorf("%s cannot go on with %q", c.name, answer.NextPageToken)
		}
		raw := &workflowservice.GetWorkflowExecutionHistoryResponse{RawHistory: []*commonpb.DataBlob{{Data: []byte("secret")}}}
		if err := a.limit(p, c, request, raw); (err == nil) != sees {
			t.Errorf("%s gets a raw history: %v", c.name, err)
		}
	}
}

// A job that reads files of another job, such as its checkpoint, needs the right to read that job.
func TestAStartReadsOnlyWhatTheCallerMayRead(t *testing.T) {
	ada, olga := newSigner(t, "ada", "user"), newSigner(t, "olga", "operator")
	a := newTestAccess(t, nil, ada, olga)
	reads := func(who signer, id string) string {
		request := startOf(who.name)
		request.Header = &commonpb.Header{Fields: map[string]*commonpb.Payload{readsHeader: text(id)}}
		return call(t, a, bearer(who.token(t)), workflowService+"StartWorkflowExecution", request)
	}
	if reason := reads(ada, "lab/job/ada/base"); reason != "" {
		t.Error(reason)
	}
	if reason := reads(olga, "lab/job/ada/base"); reason != "" {
		t.Error(reason)
	}
	for _, id := range []string{"lab/job/bob/base", "lab/job/ada/../bob/base", "else/job/ada/base", "", "lab/scheduler"} {
		if reads(ada, id) == "" {
			t.Errorf("ada reads %q", id)
		}
	}
}

// Servers cannot check the content of a signal, so its name has the host of which it tells.
func TestAHostTellsTheSchedulerOnlyOfItself(t *testing.T) {
	host, joined, ada := newSigner(t, "host/h-w-1", roleHost), newSigner(t, "host/h-w-11", roleHost), newSigner(t, "ada", "user")
	a := newTestAccess(t, nil, host, joined, ada)
	tells := func(who signer, name string) bool {
		return call(t, a, bearer(who.token(t)), signalMethod, signal("lab/scheduler", name)) == ""
	}
	if !tells(host, "vacate/h-w-1") || !tells(joined, "vacate/h-w-11") {
		t.Error("a host cannot tell of itself")
	}
	for _, name := range []string{"vacate/h-w-11", "vacate/", "vacate/x/h-w-1", "vacate", "vacate/{host}", "deliver/h-w-1", "deliver"} {
		if tells(host, name) {
			t.Errorf("host h-w-1 sends %q", name)
		}
	}
	if tells(ada, "vacate/{host}") || tells(ada, "vacate/h-w-1") || tells(ada, "vacate/ada") {
		t.Error("a person tells of a host")
	}
}

// A refused call is the caller's error, not the server's: it is no stack trace in the server's log.
func TestARefusedCallIsOneLineOfTheLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	logger := log.NewZapLogger(log.BuildZapLogger(log.Config{OutputFile: path, Level: "info"}))
	a := newTestAccess(t, nil)
	on := dynamicconfig.GetBoolPropertyFn(true)
	server := authorization.NewInterceptor(a, a, metrics.NoopMetricsHandler, log.With(WithShortRefusals(logger), tag.NewStringTag("service", "x")), nil, nil, "", "", on, on, nil, on)
	claims, _ := a.GetClaims(&authorization.AuthInfo{})
	if _, err := server.Authorize(context.Background(), claims, &authorization.CallTarget{APIName: signalMethod, Request: signal("lab/job/ada/x", "hold")}); err == nil {
		t.Fatal("a call without a token is allowed")
	}
	data, _ := os.ReadFile(path)
	if lines := strings.Count(string(data), "\n"); lines != 1 || strings.Contains(string(data), "stacktrace") {
		t.Errorf("%d lines: %s", lines, data)
	}
}

func text(value string) *commonpb.Payload { return &commonpb.Payload{Data: []byte(`"` + value + `"`)} }

func startOf(user string) *workflowservice.StartWorkflowExecutionRequest {
	return &workflowservice.StartWorkflowExecutionRequest{
		Namespace: "default", WorkflowId: "lab/job/" + user + "/train", WorkflowType: &commonpb.WorkflowType{Name: "JobWorkflow"},
		TaskQueue: &taskqueuepb.TaskQueue{Name: "lab/control"}, Identity: user + "@here", RequestId: "x",
		SearchAttributes: &commonpb.SearchAttributes{IndexedFields: map[string]*commonpb.Payload{
			"IrisCluster": text("lab"), "IrisKind": text("job"), "IrisUser": text(user), "IrisState": text("PENDING"),
		}},
	}
}

func benchmarkCall(b *testing.B, api string, request any) {
	ada := newSigner(b, "ada", "user")
	a := newTestAccess(b, nil, ada)
	info := bearer(ada.token(b))
	if reason := call(b, a, info, api, request); reason != "" {
		b.Fatal(reason)
	}
	b.ReportAllocs()
	for b.Loop() {
		claims, _ := a.GetClaims(info)
		_, _ = a.Authorize(context.Background(), claims, &authorization.CallTarget{APIName: api, Request: request})
	}
}

func BenchmarkRead(b *testing.B) {
	benchmarkCall(b, workflowService+"DescribeWorkflowExecution", &workflowservice.DescribeWorkflowExecutionRequest{
		Namespace: "default", Execution: &commonpb.WorkflowExecution{WorkflowId: "lab/job/bob/train"},
	})
}

func BenchmarkStart(b *testing.B) {
	benchmarkCall(b, workflowService+"StartWorkflowExecution", startOf("ada"))
}

// BenchmarkNewToken is the cost of the first call with a token.
func BenchmarkNewToken(b *testing.B) {
	ada := newSigner(b, "ada", "user")
	a := newTestAccess(b, nil, ada)
	info := bearer(ada.token(b))
	for b.Loop() {
		p := a.policy.current.Load()
		p.verified.tokens = nil
		p.identify(info, time.Now())
	}
}
