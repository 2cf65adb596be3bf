package access

import (
	"fmt"
	"slices"
	"strings"
)

// caller is who makes a call.
type caller struct {
	name string
	role string
	// key is the id of the key that signed the token; empty for certificates.
	key string
	// path is what a person or a job owns: the user, and for a job its names.
	path []string
	// host and slice are what a host owns.
	host, slice string
	// refusal is why the caller's token or certificate is not accepted; empty if it is. A caller
	// with a refusal may do nothing.
	refusal string
}

// newCaller returns the caller of this name: a name, host/HOST, or job/USER/NAME.
func newCaller(name, role, key string) (*caller, error) {
	c := &caller{name: name, role: role, key: key}
	parts := strings.Split(name, "/")
	for _, part := range parts {
		if !isName(part) {
			return nil, fmt.Errorf("%q is not the name of somebody", name)
		}
	}
	switch role {
	case roleHost:
		if len(parts) != 2 || parts[0] != roleHost {
			return nil, fmt.Errorf("%q is not the name of a host", name)
		}
		c.host, c.slice = parts[1], sliceOfHost(parts[1])
	case roleJob:
		if len(parts) < 3 || parts[0] != roleJob {
			return nil, fmt.Errorf("%q is not the name of a job", name)
		}
		c.path = parts[1:]
	default:
		if len(parts) != 1 {
			return nil, fmt.Errorf("%q is not the name of a person", name)
		}
		if role != roleControlPlane {
			c.path = parts
		}
	}
	return c, nil
}

// sliceOfHost returns the slice of a host's id (names.slice_of_host in Python).
func sliceOfHost(host string) string {
	if at := strings.LastIndex(host, "-w-"); at > 0 && isNumber(host[at+3:]) {
		return host[:at]
	}
	return host
}

// owns returns whether an object is the caller's own.
//
// given is the id of the workflow whose activity the caller was given, as it proves with a task
// token; empty if it shows none.
func (c *caller) owns(o object, id, given string) bool {
	switch {
	case c.role == roleHost:
		if given != "" && given == id && o.owned {
			return true
		}
		return len(o.path) == 1 && (o.kind == "host" && o.path[0] == c.host || o.kind == "slice" && o.path[0] == c.slice)
	case len(c.path) == 0 || !o.owned:
		return false
	default:
		return len(o.path) >= len(c.path) && slices.Equal(o.path[:len(c.path)], c.path)
	}
}

// isPerson returns whether the calls of this caller are changes that the audit lists.
func (c *caller) isPerson() bool { return c.role != roleHost && c.role != roleControlPlane }

// ownHost stands in rules for the id of the host that calls.
const ownHost = "{host}"

// asRule returns the name of what a caller asks for as rules have it: with `ownHost` in the place of
// the caller's host at its end.
func (c *caller) asRule(name string) string {
	begin, ok := strings.CutSuffix(name, "/"+c.host)
	switch {
	case c.host != "" && ok:
		return begin + "/" + ownHost
	case strings.Contains(name, ownHost):
		return ownHost // no rule allows it alone
	}
	return name
}
