package pods_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/cli/command"
)

func TestRestart(t *testing.T) {
	n, _ := startNode(t)
	var asked []string
	n.Restart = func(uid types.UID, container, id string, grace time.Duration) {
		asked = append(asked, fmt.Sprint(uid, " ", container, " ", id, " ", grace))
		if uid == "uid-web-pi" {
			n.Replace("web-pi", container) // the worker replaces the container
		}
	}
	check(t, n, run(t, n, "", "restart", "web"), 0, "pod/web-pi restarted\n", "")
	check(t, n, run(t, n, "", "restart", "none"), command.ExitNotFound, "", "islet: pod \"none\" not found\n")
	check(t, n, run(t, n, "", "restart"), command.ExitUsage, "", "islet: restart needs a pod: islet restart POD\n")
	check(t, n, run(t, n, "", "restart", "web", "--grace-period=1", "--wait=false"), 0, "pod/web-pi restarted\n", "")

	// The restart of a crashed container does not wait for its back-off.
	asked = nil
	check(t, n, run(t, n, "", "restart", "crash", "--wait=false", "--grace-period=7"), 0, "pod/crash-pi restarted\n", "")
	if len(asked) != 1 || !strings.HasPrefix(asked[0], "uid-crash-pi app ") || !strings.HasSuffix(asked[0], " 7s") {
		t.Errorf("requested %q", asked)
	}
	// The container is not replaced, so the wait times out.
	if got := run(t, n, "", "restart", "crash", "--timeout=50ms"); got.Code != 1 || !strings.Contains(got.Err, "is not ready 50ms after") {
		t.Errorf("no new container: %+v", got)
	}
	fresh := n.Pod("fresh", now, "app").DeepCopy()
	fresh.Status.ContainerStatuses[0] = v1.ContainerStatus{Name: "app", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}
	n.Put(fresh)
	if got := run(t, n, "", "restart", "fresh"); got.Code != 1 || !strings.Contains(got.Err, "has no container that has run yet") {
		t.Errorf("nothing to restart: %+v", got)
	}
	once := n.Pod("once", now, "job")
	once.Spec.RestartPolicy = v1.RestartPolicyOnFailure
	check(t, n, run(t, n, "", "restart", "once"), 1, "",
		"islet: pod default/once: container job has the restartPolicy OnFailure, so it would not start again: delete the pod and apply it again\n")
}
