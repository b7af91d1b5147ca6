package server_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/internal/api"
)

// TestRunningContainers checks that exec, attach, run and cp reach a container if it is running according to the runtime. A container whose
// postStart hook runs is waiting in the pod's status. A container that has just ended is still running there.
func TestRunningContainers(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Root = t.TempDir()
	hooked := n.Pod("hooked", time.Now(), "c").DeepCopy()
	hooked.Status.ContainerStatuses[0].State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "PodInitializing"}}
	n.Put(hooked)
	n.Pod("ended", time.Now(), "c")
	n.Runtime.Exit("ended-c")
	again := n.Pod("again", time.Now(), "c").DeepCopy()
	again.Status.ContainerStatuses[0].State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	n.Put(again)
	n.Runtime.Exit("again-c")
	gone := n.Pod("gone", time.Now(), "c").DeepCopy()
	gone.Status.ContainerStatuses[0].ContainerID = "islet://removed"
	n.Put(gone)
	for _, way := range []struct {
		method, path string
		code         int    // of a running container
		want         string // part of the response
	}{
		{"POST", "/exec/default/POD/c?command=x&output=1", http.StatusBadRequest, "Upgrade request required"},
		{"POST", "/attach/default/POD/c?output=1", http.StatusBadRequest, "Upgrade request required"},
		{"POST", "/run/default/POD/c?cmd=ls", http.StatusOK, "ls"},
		{"GET", api.PathFiles + "/default/POD/c?path=/", http.StatusOK, ""},
	} {
		for _, pod := range []string{"hooked", "ended", "again", "gone"} {
			path, code, want := strings.Replace(way.path, "POD", pod, 1), way.code, way.want
			if pod != "hooked" {
				code, want = http.StatusBadRequest, `container not found ("c")`
			}
			if got, body := n.Do(t, way.method, path, ""); got != code || !strings.Contains(body, want) {
				t.Errorf("%s %s: %d %.200s, want %d %q", way.method, path, got, body, code, want)
			}
		}
	}
}
