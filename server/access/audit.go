package access

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.temporal.io/server/common/api"
	"go.temporal.io/server/common/authorization"
	"google.golang.org/grpc/peer"
)

// entryLine is one line of the audit.
type entryLine struct {
	At      string `json:"at"`
	Who     string `json:"who"`
	Role    string `json:"role"`
	Key     string `json:"key,omitempty"`
	From    string `json:"from,omitempty"`
	Method  string `json:"method"`
	What    string `json:"what,omitempty"`
	Detail  string `json:"detail,omitempty"`
	Why     string `json:"why,omitempty"`
	Allowed bool   `json:"allowed"`
	// Refusal is why the call was not allowed.
	Refusal string `json:"refusal,omitempty"`
	// LeftOut is how many lines of calls that were not allowed are missing before this one.
	LeftOut int `json:"left_out,omitempty"`
}

// message returns the error of a call that is not allowed.
func (l entryLine) message() string {
	what := l.What
	if what != "" {
		what = " " + what
	}
	return fmt.Sprintf("%s (%s) may not %s%s: %s", l.Who, l.Role, l.Method, what, l.Refusal)
}

const (
	// refusalsPerSecond is how many calls that are not allowed are recorded, so that a stranger
	// cannot fill the disk.
	refusalsPerSecond = 20
	// maxText is the most characters of a text that a client has chosen.
	maxText = 300
)

func line(ctx context.Context, c *caller, target *authorization.CallTarget, asks []ask, reason string) entryLine {
	found := entryLine{
		Who: c.name, Role: c.role, Key: c.key[:min(len(c.key), 12)], Method: api.MethodName(target.APIName),
		Allowed: reason == "", Refusal: cut(reason),
	}
	if from, ok := peer.FromContext(ctx); ok {
		found.From = from.Addr.String()
	}
	for _, each := range asks {
		if found.What == "" {
			found.What, found.Detail, found.Why = cut(withoutCluster(each.id)), cut(each.detail), cut(each.why)
		} else if each.detail != "" {
			found.Detail = cut(found.Detail + ", " + each.detail)
		}
	}
	return found
}

func cut(text string) string {
	if runes := []rune(text); len(runes) > maxText {
		return string(runes[:maxText]) + "…"
	}
	return text
}

// audit appends lines to a file for each hour and each server.
type audit struct {
	mu     sync.Mutex
	server string
	path   string
	file   *os.File

	second   int64
	refusals int
	leftOut  int
}

func newAudit() *audit {
	host, err := os.Hostname()
	if err != nil || !isName(host) {
		host = "server"
	}
	return &audit{server: fmt.Sprintf("%s-%d", host, os.Getpid())}
}

func (a *audit) write(dir string, now time.Time, entry entryLine) error {
	if dir == "" {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !entry.Allowed {
		if now.Unix() != a.second {
			a.second, a.refusals = now.Unix(), 0
		}
		if a.refusals++; a.refusals > refusalsPerSecond {
			a.leftOut++
			return nil
		}
	}
	entry.At = now.UTC().Format(time.RFC3339Nano)
	entry.LeftOut = a.leftOut
	data, err := json.Marshal(entry)
	if err != nil {
		return err
	}
	if err := a.open(filepath.Join(dir, fmt.Sprintf("audit-%s-%s.jsonl", now.UTC().Format("20060102T15"), a.server))); err != nil {
		return err
	}
	if _, err := a.file.Write(append(data, '\n')); err != nil {
		return err
	}
	a.leftOut = 0
	return nil
}

func (a *audit) open(path string) error {
	if a.file != nil && a.path == path {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return err
	}
	if a.file != nil {
		_ = a.file.Close()
	}
	a.path, a.file = path, file
	return nil
}
