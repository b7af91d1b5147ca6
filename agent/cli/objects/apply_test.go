package objects_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/agent/cli/command"
)

func TestApplyDelete(t *testing.T) {
	n, _ := startNode(t)
	file := filepath.Join(n.Dir, "hello.yaml")
	manifest := "apiVersion: v1\nkind: Pod\nmetadata: {name: hello}\n"
	os.WriteFile(file, []byte(manifest), 0o600)
	check(t, n, run(t, n, "", "apply", "-f", file), 0, "pod/hello created\n", "")
	check(t, n, run(t, n, manifest, "apply", "-f", "-"), 0, "pod/hello unchanged\n", "")
	check(t, n, run(t, n, "bad: x", "apply", "-f", "-"), 1, "",
		"islet: standard input: error unmarshaling JSON: while decoding JSON: json: unknown field \"bad\"\n")
	check(t, n, run(t, n, "", "apply", "-f", filepath.Join(n.Dir, "none")), command.ExitNotFound, "", "islet: no file DIR/none\n")
	check(t, n, run(t, n, "", "apply", "-f", "/dev/zero"), 1, "", "islet: /dev/zero is too large: a manifest may have at most 8 MiB\n")
	bad := filepath.Join(n.Dir, "bad.yaml")
	os.WriteFile(bad, []byte("bad: x"), 0o600)
	check(t, n, run(t, n, "kind: Pod", "apply", "-f", bad, "-f", "-"), 1, "",
		"islet: DIR/bad.yaml: error unmarshaling JSON: while decoding JSON: json: unknown field \"bad\"\nislet: standard input contains no pod and no object that pods use\n")
	check(t, n, run(t, n, "", "delete", "-f", file, "--force"), 0, "pod/hello deleted\n", "")
	check(t, n, run(t, n, "", "delete", "-f", file), command.ExitNotFound, "", "islet: pod \"hello\" does not exist\n")
	check(t, n, run(t, n, "", "delete", "pod", "hello", "--ignore-not-found"), 0, "", "")
	check(t, n, run(t, n, "", "delete", "dns"), 1, "", "islet: pod kube-system/dns-pi comes from the file source: remove its manifest there\n")

	// The command waits until the pod has been deleted.
	watching := n.Changed()
	done := make(chan result, 1)
	go func() { done <- run(t, n, "", "delete", "web") }()
	<-watching // the pod is Terminating
	n.Remove("uid-web-pi")
	check(t, n, <-done, 0, "pod/web-pi deleted\n", "")
	check(t, n, run(t, n, "", "delete", "crash", "--timeout=50ms"), 1, "pod/crash-pi deleted\n", "islet: 1 pod still not gone after 50ms\n")
}

func TestDeleteAll(t *testing.T) {
	n, _ := startNode(t) // the pod dns-pi comes from a file and is in another namespace
	check(t, n, run(t, n, "", "delete", "--all", "web"), command.ExitUsage, "", "islet: --all and -l cannot be combined with names of pods\n")
	check(t, n, run(t, n, "", "delete", "--all", "-n", "kube-system"), 0, "", "No pods to delete.\n")
	got := run(t, n, "", "delete", "--all", "-A", "--force")
	lines := strings.Split(strings.TrimSpace(got.Out), "\n")
	slices.Sort(lines)
	if got.Code != 0 || !slices.Equal(lines, []string{"pod/crash-pi deleted", "pod/web-pi deleted"}) || len(n.List()) != 1 {
		t.Errorf("delete --all: %+v, %d pods are left", got, len(n.List()))
	}
}

func TestApplyDryRun(t *testing.T) {
	n, _ := startNode(t)
	before := len(n.List())
	check(t, n, run(t, n, "apiVersion: v1\nkind: Pod\nmetadata: {name: hello}\n", "apply", "--dry-run", "-f", "-"), 0,
		"pod/hello created (dry run)\n", "")
	check(t, n, run(t, n, "bad: x", "apply", "--dry-run", "-f", "-"), 1, "",
		"islet: standard input: error unmarshaling JSON: while decoding JSON: json: unknown field \"bad\"\n")
	if len(n.List()) != before {
		t.Error("a dry run must not apply")
	}
}
