package access

import (
	"crypto"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/log/tag"
)

// The roles of the policy that Go treats specially. The rules say what each of them may do.
const (
	roleHost         = "host"
	roleJob          = "job"
	roleControlPlane = "control-plane"
)

// reloadInterval is how often the policy's file is looked at.
const reloadInterval = 2 * time.Second

// policy is one version of the policy's file, which Python writes (iris/access).
type policy struct {
	Version      int                    `json:"version"`
	Cluster      string                 `json:"cluster"`
	Namespace    string                 `json:"namespace"`
	Principals   []entry                `json:"principals"`
	Issuers      []*issuer              `json:"issuers"`
	Certificates map[string]certificate `json:"certificates"`
	Revoked      []string               `json:"revoked"`
	// AuditDir is the directory of the audit's files; empty: none are written.
	AuditDir string `json:"audit_dir"`
	Rules    *rules `json:"rules"`

	// keys has the keys that are not revoked, by their id.
	keys map[string]policyKey
	// verified has the callers of tokens that were checked, because a signature costs more than
	// all other checks together.
	verified cache
}

// entry is a person, a machine or a control plane with its public keys.
type entry struct {
	Name string            `json:"name"`
	Role string            `json:"role"`
	Keys []jose.JSONWebKey `json:"keys"`
	// Slice is that of a host that joined; empty if it has the id of the host.
	Slice string `json:"slice"`
}

// certificate is who a client certificate with some common name belongs to.
type certificate struct {
	Name string `json:"name"`
	Role string `json:"role"`
}

type policyKey struct {
	key   crypto.PublicKey
	owner *entry
}

// readPolicy reads and checks the file.
func readPolicy(path string) (*policy, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p := &policy{keys: map[string]policyKey{}}
	if err := json.Unmarshal(data, p); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

func (p *policy) check() error {
	if p.Version != 1 {
		return fmt.Errorf("version %d is unknown", p.Version)
	}
	if p.Cluster == "" || p.Namespace == "" || p.Rules == nil {
		return errors.New("cluster, namespace and rules are required")
	}
	for _, e := range p.Principals {
		if _, err := newCaller(e.Name, e.Role, ""); err != nil {
			return err
		}
		for _, key := range e.Keys {
			id, err := thumbprint(&key)
			if err != nil {
				return fmt.Errorf("a key of %s: %w", e.Name, err)
			}
			if _, twice := p.keys[id]; twice {
				return fmt.Errorf("key %s is there twice", id)
			}
			if !slices.Contains(p.Revoked, id) {
				p.keys[id] = policyKey{key.Key, &e}
			}
		}
	}
	for name, c := range p.Certificates {
		if _, err := newCaller(c.Name, c.Role, ""); err != nil {
			return fmt.Errorf("certificate %q: %w", name, err)
		}
	}
	for _, i := range p.Issuers {
		if err := i.check(); err != nil {
			return err
		}
	}
	return p.Rules.compile()
}

// thumbprint returns the id of a public key, as RFC 7638 defines it.
func thumbprint(key *jose.JSONWebKey) (string, error) {
	if !key.IsPublic() || !key.Valid() {
		return "", errors.New("it is not a valid public key")
	}
	sum, err := key.Thumbprint(crypto.SHA256)
	return base64.RawURLEncoding.EncodeToString(sum), err
}

// policyFile is the policy's file, which is read again when it has changed.
type policyFile struct {
	path    string
	logger  log.Logger
	current atomic.Pointer[policy]
	read    os.FileInfo
}

func openPolicy(path string, logger log.Logger) (*policyFile, error) {
	f := &policyFile{path: path, logger: logger}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	p, err := readPolicy(path)
	if err != nil {
		return nil, err
	}
	f.read = info
	f.current.Store(p)
	go func() {
		for range time.Tick(reloadInterval) {
			f.reload()
		}
	}()
	return f, nil
}

// reload reads the file if it has changed. A version that is invalid is ignored.
func (f *policyFile) reload() {
	info, err := os.Stat(f.path)
	if err == nil && os.SameFile(info, f.read) && info.ModTime().Equal(f.read.ModTime()) && info.Size() == f.read.Size() {
		return
	}
	var p *policy
	if err == nil {
		p, err = readPolicy(f.path)
	}
	if err != nil {
		f.logger.Error("the access policy cannot be read; the last one stays in force", tag.Error(err))
		return
	}
	f.read = info
	f.current.Store(p)
	f.logger.Info("the access policy was read", tag.String("path", f.path))
}

// cache holds the callers of tokens.
type cache struct {
	mu     sync.RWMutex
	tokens map[string]cached
}

type cached struct {
	caller  *caller
	expires time.Time
}

// cacheSize is the most tokens in a cache. A client sends one token for minutes.
const cacheSize = 20_000

func (c *cache) get(token string, now time.Time) *caller {
	c.mu.RLock()
	found, ok := c.tokens[token]
	c.mu.RUnlock()
	if !ok || now.After(found.expires) {
		return nil
	}
	return found.caller
}

func (c *cache) put(token string, found cached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tokens == nil || len(c.tokens) >= cacheSize {
		c.tokens = map[string]cached{}
	}
	// The token is part of a larger string, which would be kept with it.
	c.tokens[strings.Clone(token)] = found
}
