package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// A report is a part of the JSON report that the suites' runner writes for a run.
type report struct {
	PreRunStats struct{ SpecsThatWillRun int }
	SpecReports []spec
}

type spec struct {
	ContainerHierarchyTexts    []string
	LeafNodeType, LeafNodeText string
	State                      string
	RunTime                    int64 // nanoseconds
	Failure                    struct {
		Message, ForwardedPanic string
		Location                struct {
			FileName   string
			LineNumber int
		}
	}
}

// name returns the full name of the spec. The runner selects specs by this name (options --focus and --skip).
func (s spec) name() string {
	return strings.Join(slices.DeleteFunc(append(slices.Clone(s.ContainerHierarchyTexts), s.LeafNodeText),
		func(part string) bool { return part == "" }), " ")
}

// These are the outcomes of a spec in the list of results.
const (
	passed = "pass"
	failed = "FAIL"
	cannot = "cannot"
)

// suiteTimeout is the runner's message for a spec that was interrupted by the time limit of the
// run.
const suiteTimeout = "A suite timeout occurred"

// results contains the outcomes of the specs of one or more runs, by name.
type results map[string]string

// add adds the outcomes of a run. A spec that was interrupted by the time limit has no outcome. The
// first result is the number of selected specs. The second result is the number of selected specs
// that were interrupted or not started.
func (r results) add(run []report, problem func(name, text string)) (wanted, left int) {
	for _, part := range run {
		wanted += part.PreRunStats.SpecsThatWillRun
		left += part.PreRunStats.SpecsThatWillRun
		for _, s := range part.SpecReports {
			isSpec, name := s.LeafNodeType == "It", s.name()
			if !isSpec {
				name = s.LeafNodeType // setup and cleanup nodes are not specs
			}
			switch state := s.State; {
			case s.Failure.Message == suiteTimeout:
			case state == "passed":
				if isSpec {
					r[name] = passed
					left--
				}
			case state == "failed", state == "panicked", state == "timedout":
				if isSpec {
					left--
				}
				if isSpec && cannotPass(name) != "" {
					r[name] = cannot
					break
				}
				r[name] = failed
				problem(name, fmt.Sprintf("%s%s\n%s:%d", s.Failure.Message, s.Failure.ForwardedPanic, s.Failure.Location.FileName,
					s.Failure.Location.LineNumber))
			}
		}
	}
	return wanted, left
}

// names returns the sorted names of the specs with an outcome.
func (r results) names(outcome string) (out []string) {
	for name, is := range r {
		if is == outcome {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// load reads a list of results. A missing file is an empty list.
func load(t testing.TB, file string) results {
	t.Helper()
	r := results{}
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		outcome, name, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if !ok {
			continue
		}
		name, _, _ = strings.Cut(name, "\t")
		r[name] = outcome
	}
	return r
}

// save writes the list of results. Each line contains the outcome and the name of a spec. If the
// spec cannot pass, the line also contains the reason.
func (r results) save(t testing.TB, file string) {
	t.Helper()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r)) {
		fmt.Fprintf(&b, "%s\t%s", r[name], name)
		if r[name] == cannot {
			fmt.Fprintf(&b, "\t%s", cannotPass(name))
		}
		b.WriteByte('\n')
	}
	must(t, os.WriteFile(file, []byte(b.String()), 0o644))
}

// decode decodes the runner's report.
func decode(t testing.TB, text []byte) (run []report) {
	t.Helper()
	must(t, json.Unmarshal(text, &run))
	return run
}

// cannotPass returns the reason why a spec cannot pass in this test, or "" if it must pass.
func cannotPass(spec string) string {
	for part, why := range map[string]string{
		"should enable privileged commands": "it adds a network interface of type dummy, which not every kernel has",
		"blocks new pod after force-delete": "it wants the new pod to complain of the old one's claim; here a " +
			"pod does not begin before another one of its name has ended",
		"read only busybox container should not write to root": "it wants the words of busybox' shell; the image's is this host's " +
			"bash, since Debian's busybox drops variables that are not names",
		"ContainerMetrics": "it wants a container's share of a disk's traffic, which cgroup v1 does not count where it goes " +
			"through the page cache, and file systems with at most 100 inodes",
		"Summary API": "it wants pressure figures of containers, which cgroup v1 does not have, an answer from the " +
			"internet, and pods without a service account's token",
		"Kubelet Cgroup Manager": "it looks for cgroups below their root; the test's " +
			"node has a root of its own for them",
		"ContainerLogPath": "its pod wants an SELinux label, which a node without SELinux refuses rather than ignores",
		"init container is removed and kubelet restarts": "it removes a container of a pod of the agent's by " +
			"the CRI socket, which protects them",
		"ReloadKubeletClientCAFileTest": "it replaces the authority of the API server's " +
			"certificate and then asks the node by the API server; in the suite's own environment that has none and is let in as anybody",
		"volume failing to unmount": "it wants an image with an NFS server of the kernel's, which cannot be made from Go modules",
		"not continue running liveness probes for restartable init containers": "it demands a gap that it says is to be closed " +
			"(KEP-4438): here probes of sidecars go on while the pod ends",
	} {
		if strings.Contains(spec, part) {
			return why
		}
	}
	return ""
}
