package access

import (
	"fmt"
	"strings"
	"time"
)

// rules say what the ids of a cluster are, and which role may do what with them.
type rules struct {
	Kinds map[string]kind `json:"kinds"`
	// Roles has the names that are allowed by role, whose ("own" or "any"), call and kind.
	Roles map[string]map[string]map[string]map[string][]string `json:"roles"`
	// Queues has, by the kind of a workflow or an activity, the kind of the queue on which it may
	// start.
	Queues     map[string]string `json:"queues"`
	Attributes attributes        `json:"attributes"`
	// PublicMemo has the keys of memos that everyone may read.
	PublicMemo []string `json:"public_memo"`

	exact    map[string]object
	prefixes []prefix
	public   map[string]bool
	grants   map[string]*grants
}

// kind is what an id can be of: with `ID` exactly this id, else all ids with the prefix.
type kind struct {
	ID     string `json:"id"`
	Prefix string `json:"prefix"`
	// Owned says whether a user's name follows the prefix.
	Owned bool `json:"owned"`
	// Timed says whether ids may end with a time, as Temporal appends to the ids of the workflows
	// that a schedule starts.
	Timed bool `json:"timed"`
}

type attributes struct {
	// Fixed are search attributes that must have this value.
	Fixed map[string]string `json:"fixed"`
	// Kind and User are the attributes for the kind and the user of an id.
	Kind string `json:"kind"`
	User string `json:"user"`
	// Parent is the attribute with the path of an id without its last part. A workflow may lack it.
	Parent string   `json:"parent"`
	Free   []string `json:"free"`
}

type prefix struct {
	text  string
	kind  string
	owned bool
	timed bool
}

// object is what an id stands for.
type object struct {
	kind string
	// path is what follows the prefix, split at slashes and without numbers of tasks: for jobs the
	// user, the job, and its child jobs.
	path  []string
	owned bool
	// text is the id without the name of the cluster.
	text string
}

// clusterObject stands for what is not of one id.
var clusterObject = object{kind: "cluster", text: "cluster"}

// The words of the rules.
const (
	own  = "own"
	any_ = "any"
	all  = "*"
)

// Calls of the rules. All of Temporal's methods are one or more of these (methods.go).
const (
	callStart     = "start"
	callSchedule  = "schedule"
	callActivity  = "activity"
	callSignal    = "signal"
	callUpdate    = "update"
	callQuery     = "query"
	callCancel    = "cancel"
	callTerminate = "terminate"
	callRead      = "read"
	callInputs    = "inputs"
	callPoll      = "poll"
	callWork      = "work"
	callList      = "list"
	callSetUp     = "set_up"
)

var calls = map[string]bool{
	callStart: true, callSchedule: true, callActivity: true, callSignal: true, callUpdate: true, callQuery: true, callCancel: true,
	callTerminate: true, callRead: true, callInputs: true, callPoll: true, callWork: true, callList: true, callSetUp: true, all: true,
}

// grants are what one role may do.
type grants struct{ own, any grantTable }

// grantTable has names by call and kind.
type grantTable map[string]map[string]map[string]bool

func (t grantTable) allows(call, kind, name string) bool {
	for _, kinds := range [...]map[string]map[string]bool{t[call], t[all]} {
		for _, names := range [...]map[string]bool{kinds[kind], kinds[all]} {
			// Without a name, the call is about an object for which the role has some name.
			if names[all] || names[name] || name == "" && len(names) > 0 {
				return true
			}
		}
	}
	return false
}

// compile checks the rules and prepares them for `parse` and `allows`.
func (r *rules) compile() error {
	r.exact, r.public, r.grants = map[string]object{}, map[string]bool{}, map[string]*grants{}
	for name, k := range r.Kinds {
		switch {
		case (k.ID == "") == (k.Prefix == ""), k.ID != "" && k.Owned:
			return fmt.Errorf("kind %s needs an id or a prefix", name)
		case k.ID != "":
			r.exact[k.ID] = object{kind: name, text: withoutCluster(k.ID)}
		case !strings.HasSuffix(k.Prefix, "/"):
			return fmt.Errorf("the prefix of kind %s does not end with a slash", name)
		default:
			r.prefixes = append(r.prefixes, prefix{k.Prefix, name, k.Owned, k.Timed})
		}
	}
	for _, one := range r.prefixes {
		for _, other := range r.prefixes {
			if one.kind != other.kind && strings.HasPrefix(one.text, other.text) {
				return fmt.Errorf("ids of kind %s would be of kind %s", one.kind, other.kind)
			}
		}
	}
	for _, key := range r.PublicMemo {
		r.public[key] = true
	}
	for role, by := range r.Roles {
		g := &grants{}
		for whose, byCall := range by {
			table := grantTable{}
			for call, kinds := range byCall {
				if !calls[call] {
					return fmt.Errorf("role %s: there is no call %q", role, call)
				}
				table[call] = map[string]map[string]bool{}
				for kind, names := range kinds {
					if _, ok := r.Kinds[kind]; !ok && kind != all && kind != clusterObject.kind {
						return fmt.Errorf("role %s: there is no kind %q", role, kind)
					}
					set := map[string]bool{}
					for _, name := range names {
						set[name] = true
					}
					table[call][kind] = set
				}
			}
			switch whose {
			case own:
				g.own = table
			case any_:
				g.any = table
			default:
				return fmt.Errorf("role %s: %q is neither own nor any", role, whose)
			}
		}
		r.grants[role] = g
	}
	return nil
}

// parse returns what an id stands for. It accepts only the ids that Iris makes, so that no id has
// two readings: nothing in them is ever decoded, resolved or folded.
func (r *rules) parse(id string) (object, bool) {
	if found, ok := r.exact[id]; ok {
		return found, true
	}
	for _, p := range r.prefixes {
		rest, ok := strings.CutPrefix(id, p.text)
		if !ok {
			continue
		}
		if p.timed {
			rest = withoutTime(rest)
		}
		path := strings.Split(rest, "/")
		if p.owned && len(path) < 2 {
			return object{}, false
		}
		for i, part := range path {
			name, number, numbered := strings.Cut(part, ":")
			if !isName(name) || numbered && (!p.owned || i == 0 || !isNumber(number)) {
				return object{}, false
			}
			path[i] = name
		}
		return object{kind: p.kind, path: path, owned: p.owned, text: withoutCluster(id)}, true
	}
	return object{}, false
}

// maxName is the most characters in a part of an id. Names that people choose have at most 60
// (iris/model/names.py). Ids of hosts, and those that Iris or Temporal complete, may be longer.
const maxName = 160

func isName(text string) bool {
	if text == "" || len(text) > maxName || !isAlphanumeric(text[0]) {
		return false
	}
	for i := 1; i < len(text); i++ {
		if c := text[i]; !isAlphanumeric(c) && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

func isAlphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

func isNumber(text string) bool {
	return text != "" && len(text) < 10 && strings.Trim(text, "0123456789") == ""
}

// withoutTime returns the id without the time at its end, such as -2026-11-28T20:58:31Z.
func withoutTime(id string) string {
	if at := len(id) - len(time.RFC3339) + 4; at > 0 && id[at] == '-' {
		if _, err := time.Parse("2006-01-02T15:04:05Z", id[at+1:]); err == nil {
			return id[:at]
		}
	}
	return id
}

func withoutCluster(id string) string {
	_, rest, _ := strings.Cut(id, "/")
	return rest
}
