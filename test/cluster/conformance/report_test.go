package conformance

import (
	"maps"
	"path/filepath"
	"regexp"
	"testing"
)

// run is a shortened report of the runner. One spec passed, one failed, one cannot pass, one was interrupted by the end of the slice, and
// one was not started. The cleanup after all specs (SynchronizedAfterSuite) failed too.
const run = `[{"PreRunStats": {"TotalSpecs": 9, "SpecsThatWillRun": 5}, "SpecReports": [
{"LeafNodeType": "It", "ContainerHierarchyTexts": ["[sig-node] Pods", ""], "LeafNodeText": "should run (a|b) [Conformance]", "State": "passed", "RunTime": 12},
{"LeafNodeType": "It", "ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeText": "should fail", "State": "timedout", "Failure": {"Message": "it took long", "Location": {"FileName": "pods.go", "LineNumber": 7}}},
{"LeafNodeType": "It", "ContainerHierarchyTexts": ["[sig-node] PrivilegedPod"], "LeafNodeText": "should enable privileged commands", "State": "failed"},
{"LeafNodeType": "It", "ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeText": "should be cut off", "State": "timedout", "Failure": {"Message": "A suite timeout occurred"}},
{"LeafNodeType": "It", "ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeText": "should come later", "State": "skipped"},
{"LeafNodeType": "SynchronizedAfterSuite", "State": "failed"}
]}]`

func TestReport(t *testing.T) {
	got := results{"from an earlier slice": passed, "[sig-node] Pods should fail": passed}
	told := map[string]string{}
	wanted, left := got.add(decode(t, []byte(run)), func(name, text string) { told[name] = text })
	if wanted != 5 || left != 2 {
		t.Errorf("%d specs were wanted and %d are left, not 5 and 2", wanted, left)
	}
	want := results{
		"from an earlier slice":                                      passed,
		"[sig-node] Pods should run (a|b) [Conformance]":             passed,
		"[sig-node] Pods should fail":                                failed,
		"[sig-node] PrivilegedPod should enable privileged commands": cannot,
		"SynchronizedAfterSuite":                                     failed,
	}
	if !maps.Equal(got, want) {
		t.Errorf("the results are\n%v, not\n%v", got, want)
	}
	if len(told) != 2 || told["[sig-node] Pods should fail"] != "it took long\npods.go:7" {
		t.Errorf("the reported problems are %q", told)
	}
}

// TestSlices checks that a slice reads the results that an earlier slice has written, and skips the specs with a result.
func TestSlices(t *testing.T) {
	file := filepath.Join(t.TempDir(), "list.txt")
	if had := load(t, file); len(had) != 0 {
		t.Errorf("a missing list contains %v", had)
	}
	wrote := results{}
	wrote.add(decode(t, []byte(run)), func(string, string) {})
	wrote.save(t, file)
	read := load(t, file)
	if !maps.Equal(read, wrote) {
		t.Errorf("the written results are\n%v, read\n%v", wrote, read)
	}
	skipped := func(name string) bool {
		for _, flag := range done(read) {
			if regexp.MustCompile(flag[len("--skip="):]).MatchString("Kubernetes e2e suite " + name) {
				return true
			}
		}
		return false
	}
	for name, want := range map[string]bool{
		"[sig-node] Pods should run (a|b) [Conformance]": true,
		"[sig-node] Pods should fail":                    true,
		"[sig-node] Pods should fail, too":               false,
		"[sig-node] Pods should be cut off":              false,
		"[sig-node] Pods should come later":              false,
	} {
		if skipped(name) != want {
			t.Errorf("%s: skipped is %v", name, !want)
		}
	}
}
