package cli

import (
	"strings"
	"testing"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
)

// TestKindOfPod checks that every command that takes a pod accepts the kind before the name, as kubectl does, and that a pod with the name
// of a kind keeps its name.
func TestKindOfPod(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", now, "app")
	for _, args := range [][]string{
		{"describe", "POD"}, {"describe", "POD", "-n", "default"}, {"logs", "POD", "--tail=1"}, {"events", "POD"}, {"wait", "POD"},
		{"exec", "POD", "--", "ls"}, {"exec", "POD", "ls"}, {"attach", "POD"}, {"debug", "POD", "-q", "--image=i", "--", "sh"},
		{"port-forward", "POD", "x"}, {"top", "POD"}, {"get", "pods", "POD"}, {"delete", "POD", "--wait=false"},
	} {
		want := run(t, n, "", replaceArg(args, "web")...)
		if args[0] == "delete" {
			n.Pod("web", now, "app")
		}
		for _, form := range [][]string{{"pod/web"}, {"po/web"}, {"pods", "web"}, {"pod", "web"}, {"po", "web"}} {
			if len(form) > 1 && args[0] == "get" {
				continue // it lists pods, so each argument is a pod
			}
			got := run(t, n, "", replaceArg(args, form...)...)
			if got.Code != want.Code || got.Out != want.Out || got.Err != want.Err {
				t.Errorf("%q: %+v, want %+v", replaceArg(args, form...), got, want)
			}
			if args[0] == "delete" {
				n.Pod("web", now, "app")
			}
		}
	}
	for _, args := range [][]string{{"describe", "pods"}, {"logs", "pod"}, {"events", "pods"}, {"exec", "pod", "--", "ls"}, {"delete", "po"}, {"restart", "pod"}} {
		if got := run(t, n, "", args...); got.Code != command.ExitUsage || got.Out != "" || !strings.Contains(got.Err, "islet pods") {
			t.Errorf("%q: %+v", args, got)
		}
	}
	check(t, n, run(t, n, "", "wait", "pods", "--all"), 0, run(t, n, "", "wait", "--all").Out, "")

	n.Pod("pod", now, "app")
	if got := run(t, n, "", "describe", "pod"); got.Code != 0 || !strings.Contains(got.Out, "pod\n") {
		t.Errorf("a pod with the name of the kind: %+v", got)
	}
	both := run(t, n, "", "describe", "pod", "web")
	if alone := run(t, n, "", "describe", "pod").Out; both.Code != 0 || !strings.HasPrefix(both.Out, alone) || both.Out == alone {
		t.Errorf("two pods: %+v", both)
	}
}

// replaceArg replaces the argument POD.
func replaceArg(args []string, form ...string) (out []string) {
	for _, a := range args {
		if a == "POD" {
			out = append(out, form...)
		} else {
			out = append(out, a)
		}
	}
	return out
}
