package conformance

import (
	"encoding/xml"
	"os"
	"slices"
	"strings"
	"testing"
)

// A report is what a suite writes in JUnit's form.
type report struct {
	Suites []struct {
		Cases []struct {
			Name    string `xml:"name,attr"`
			Status  string `xml:"status,attr"`
			Failure *struct {
				Message string `xml:"message,attr"`
				Text    string `xml:",chardata"`
			} `xml:"failure"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

// unreachable says why a spec cannot pass here; empty: it has to.
func unreachable(spec string) string {
	for part, why := range map[string]string{
		"should enable privileged commands":                                               "it adds a network interface of type dummy, which not every kernel has",
		"read only busybox container should not write to root":                            "it wants the words of busybox' shell; the image's is this host's bash, since Debian's busybox drops variables that are no names",
		"MirrorPod when create a mirror pod without changes should successfully recreate": "a manifest that is removed and comes back at once, unchanged, restarts nothing here",
		"Kubelet Cgroup Manager":                                                          "it looks for cgroups below their root; the test's node has a root of its own for them",
		"ContainerLogPath":                                                                "its pod wants an SELinux label, which a node without SELinux refuses rather than ignores",
		"when the image is updated":                                                       "it pulls from the internet",
		"not continue running liveness probes for restartable init containers":            "it demands a gap that it says is to be closed (KEP-4438): here probes of sidecars go on while the pod ends",
		"with a new image [Serial] should be able to pull image":                          "it pulls from the internet",
	} {
		if strings.Contains(spec, part) {
			return why
		}
	}
	return ""
}

// counts are the specs of a report by their outcome.
type counts struct{ passed, cannot, failed int }

// judge demands that each spec of a report passed that can, and lists them in a file.
func judge(t *testing.T, junit []byte, file string) (n counts) {
	t.Helper()
	var r report
	must(t, xml.Unmarshal(junit, &r))
	var list []string
	for _, s := range r.Suites {
		for _, x := range s.Cases {
			name, isSpec := strings.CutPrefix(x.Name, "[It] ")
			switch why := unreachable(name); {
			case x.Failure != nil && why != "":
				list, n.cannot = append(list, "cannot  "+name+": "+why), n.cannot+1
			case x.Failure != nil:
				list, n.failed = append(list, "FAIL    "+name), n.failed+1
				t.Errorf("%s: %s\n%.3000s", name, x.Failure.Message, x.Failure.Text)
			case x.Status == "passed" && isSpec:
				list, n.passed = append(list, "pass    "+name), n.passed+1
			}
		}
	}
	slices.Sort(list)
	must(t, os.WriteFile(file, []byte(strings.Join(list, "\n")+"\n"), 0o644))
	return n
}
