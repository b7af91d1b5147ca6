package rebuild

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/agent/pod/probe/lifecycle"
	"github.com/islet-edge/islet/agent/pod/status"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/internal/podtest"
)

type views map[types.UID]plan.Observed

func (v views) Pod(uid types.UID) plan.Observed { return v[uid] }

// A statuses is a store whose writes fail when err is set.
type statuses struct {
	known, stored map[types.UID]*v1.PodStatus
	err           error
}

func (s *statuses) Statuses(context.Context) (map[types.UID]*v1.PodStatus, error) {
	return s.known, nil
}

func (s *statuses) StoreStatuses(_ context.Context, all map[types.UID]*v1.PodStatus) error {
	s.stored = all
	return s.err
}

// TestEndsAreKept checks that the node stores the finished pods of the API server, with their exit codes, before it changes to another
// runtime. It stores no other pods.
func TestEndsAreKept(t *testing.T) {
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ran := func(state plan.State, code int32) plan.Observed {
		return plan.Observed{
			Sandboxes:  []plan.Sandbox{{ID: "s", Ready: true, CreatedAt: began, Started: began}},
			Containers: []plan.Container{{ID: "c1", Name: "c", SandboxID: "s", State: state, ExitCode: code, CreatedAt: began, StartedAt: began, FinishedAt: began.Add(time.Minute)}},
		}
	}
	seen, known, ends := views{}, map[types.UID]*v1.PodStatus{}, FinalStatuses{Host: status.Host{}, Now: began.Add(time.Hour), Log: slog.New(slog.DiscardHandler)}
	add := func(uid types.UID, source string, policy v1.RestartPolicy, o plan.Observed, phase v1.PodPhase) *desired.Pod {
		p := podtest.New(string(uid), podtest.RestartPolicy(policy), podtest.Image("i"))
		ends.Pods = append(ends.Pods, desired.Pod{Pod: p, Source: source})
		seen[uid], known[uid] = o, &v1.PodStatus{Phase: phase}
		return &ends.Pods[len(ends.Pods)-1]
	}
	add("succeeded", desired.API, v1.RestartPolicyNever, ran(plan.Exited, 0), v1.PodRunning)
	add("failed", desired.API, v1.RestartPolicyNever, ran(plan.Exited, 3), v1.PodRunning)
	delete(known, "failed")
	add("onfailure", desired.API, v1.RestartPolicyOnFailure, ran(plan.Exited, 0), v1.PodRunning)
	interrupted := func(name string) plan.Observed {
		o := ran(plan.Exited, 0)
		o.Containers[0].ID = name
		return o
	}
	add("resized", desired.API, v1.RestartPolicyNever, interrupted("c2"), v1.PodRunning)
	add("stopped", desired.API, v1.RestartPolicyOnFailure, interrupted("c3"), v1.PodRunning)
	add("cut off", desired.API, v1.RestartPolicyNever, interrupted("c3"), v1.PodRunning)
	ends.State = t.TempDir()
	for _, mark := range []string{"replaced.c2", "cut-off.c3"} {
		path := filepath.Join(ends.State, "interrupted", mark)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	add("again", desired.API, v1.RestartPolicyOnFailure, ran(plan.Exited, 1), v1.PodRunning)
	add("always", desired.API, v1.RestartPolicyAlways, ran(plan.Exited, 0), v1.PodRunning)
	runs := func(id string) plan.Observed {
		o := ran(plan.Running, 0)
		o.Containers[0].ID = id
		return o
	}
	add("running", desired.API, v1.RestartPolicyNever, runs("r1"), v1.PodRunning)
	add("static job", desired.Local, v1.RestartPolicyOnFailure, runs("r2"), v1.PodRunning)
	add("service", desired.API, v1.RestartPolicyAlways, runs("r3"), v1.PodRunning) // it always runs again
	add("nothing", desired.API, v1.RestartPolicyNever, plan.Observed{}, v1.PodPending)
	add("static", desired.Local, v1.RestartPolicyNever, ran(plan.Exited, 0), v1.PodRunning)
	add("told", desired.API, v1.RestartPolicyNever, ran(plan.Exited, 0), v1.PodFailed)
	add("deleted", desired.API, v1.RestartPolicyNever, ran(plan.Exited, 0), v1.PodRunning).Deleting = true

	store := &statuses{known: known}
	ends.View, ends.Store = seen, store
	if err := ends.StoreAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := map[types.UID]struct {
		phase v1.PodPhase
		code  int32
	}{"succeeded": {v1.PodSucceeded, 0}, "failed": {v1.PodFailed, 3}, "onfailure": {v1.PodSucceeded, 0}, "cut off": {v1.PodFailed, 0}}
	for uid, w := range want {
		s := store.stored[uid]
		if s == nil || s.Phase != w.phase || len(s.ContainerStatuses) != 1 || s.ContainerStatuses[0].State.Terminated == nil ||
			s.ContainerStatuses[0].State.Terminated.ExitCode != w.code {
			t.Errorf("%s: stored %+v", uid, s)
		}
	}
	if len(store.stored) != len(want) {
		t.Errorf("%d are stored, want %d", len(store.stored), len(want))
	}

	stops, err := lifecycle.ReadInterruptions(ends.State)
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]plan.Interruption{"r1": plan.Replaced, "r2": plan.Replaced, "r3": 0, "c1": 0, "c3": plan.CutOff} {
		if got := stops.Interruption(id); got != want {
			t.Errorf("container %s: %v, want %v", id, got, want)
		}
	}

	store.err = errors.New("disk full")
	if err := ends.StoreAll(t.Context()); !errors.Is(err, store.err) {
		t.Errorf("a store that fails: %v", err)
	}
}
