package cluster

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// auditPolicy makes the API server log one line for each request of a node, and two for each watch. It logs no other client, because
// the benchmarks measure the API server's CPU time.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, userGroups: ["system:nodes"]}
- {level: None}
`

// auditFlags returns the API server's flags for its audit log. The log has at most two files of 32 MB, which are in memory.
func auditFlags() []string {
	return []string{"--audit-policy-file=" + dir + "/audit.yaml", "--audit-log-path=" + dir + "/audit.log", "--audit-log-maxsize=32",
		"--audit-log-maxbackup=1"}
}

// Requests contains the number of requests by verb and resource, such as "patch pods/status".
type Requests map[string]int

// Requests returns the requests that the API server has received from a node in a period, according to its audit log. A watch is one
// request.
func (c *Cluster) Requests(t testing.TB, node string, from, until time.Time) Requests {
	t.Helper()
	files, err := os.ReadDir(c.path(""))
	if err != nil {
		t.Fatal(err)
	}
	found, seen := Requests{}, map[string]bool{}
	for _, f := range files {
		if !strings.HasPrefix(f.Name(), "audit") || !strings.HasSuffix(f.Name(), ".log") {
			continue
		}
		if err := countRequests(c.path(f.Name()), "system:node:"+node, from, until, found, seen); err != nil {
			t.Fatalf("the audit log: %v", err)
		}
	}
	return found
}

// countRequests adds the requests of a user in a file of the audit log to found. The keys of seen are the IDs of the counted requests.
func countRequests(path, user string, from, until time.Time, found Requests, seen map[string]bool) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			AuditID                  string
			Verb, RequestURI         string
			User                     struct{ Username string }
			ObjectRef                *struct{ Resource, Subresource string }
			RequestReceivedTimestamp time.Time
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("%w in %q", err, lines.Text())
		}
		at := e.RequestReceivedTimestamp
		if e.User.Username != user || at.Before(from) || !at.Before(until) || seen[e.AuditID] {
			continue
		}
		seen[e.AuditID] = true
		what := e.RequestURI
		if r := e.ObjectRef; r != nil {
			what = strings.TrimSuffix(r.Resource+"/"+r.Subresource, "/")
		}
		found[e.Verb+" "+what]++
	}
	return lines.Err()
}

// renewal is the request that a node sends every quarter of the Lease's duration.
const renewal = "patch leases"

// Total returns the number of requests except the regular renewals of the Lease.
func (r Requests) Total() (n int) {
	for what, count := range r {
		if what != renewal {
			n += count
		}
	}
	return n
}

// String returns the numbers, the largest first.
func (r Requests) String() string {
	names := slices.SortedFunc(maps.Keys(r), func(a, b string) int {
		if r[a] != r[b] {
			return r[b] - r[a]
		}
		return strings.Compare(a, b)
	})
	for i, name := range names {
		names[i] = fmt.Sprint(r[name], " ", name)
	}
	return strings.Join(names, ", ")
}

// CPU returns the CPU time that the API server and etcd have used since their last start.
func (c *Cluster) CPU(t testing.TB) (sum time.Duration) {
	t.Helper()
	for _, part := range []string{"kube-apiserver", "etcd"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.procs[part].Pid))
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(b), ") ") // the fields after the program's name, from the state on
		for _, ticks := range strings.Fields(after)[11:13] {
			n, err := strconv.Atoi(ticks)
			if err != nil {
				t.Fatal(err)
			}
			sum += time.Duration(n) * 10 * time.Millisecond // USER_HZ is 100 on every architecture of the tests
		}
	}
	return sum
}
