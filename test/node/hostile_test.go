package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/hostile"
	"github.com/islet-edge/islet/test/machine"
)

// TestHostileManifests writes 500 manifests with random bytes and mutated pods beside a well-behaved pod. It checks that the agent does
// not crash and that the well-behaved pod is not affected.
func TestHostileManifests(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.Write("manifests/good.yaml", manifest("good", "", "count", "10ms"))
	agent := m.StartAgent()
	before := m.WaitReady("good-edge")["good-edge"]

	made := hostile.Manifests(hostile.Options{Seed: 1, Count: 500, Victim: "good"})
	if err := hostile.Write(filepath.Join(m.Disk, "manifests"), made); err != nil {
		t.Fatal(err)
	}
	m.Await("the manifests to be read", func() bool {
		out, _ := m.Try("status")
		return strings.Count(out, "\n") > 100
	})
	select {
	case <-agent.Ended:
		t.Fatalf("the agent ended:\n%s", m.AgentLog(8<<10))
	default:
	}
	requireSame(t, before, m.Pods()["good-edge"])

	entries, err := os.ReadDir(filepath.Join(m.Disk, "manifests"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "good.yaml" {
			m.Remove("manifests/" + e.Name())
		}
	}
	after := m.WaitReady("good-edge")["good-edge"]
	requireSame(t, before, after)
	m.Await("the problems to be gone", func() bool {
		return machine.IsWell(m.Try("status"))
	})
	if log := m.AgentLog(1 << 30); strings.Contains(log, "panic") {
		t.Error("something panicked")
	}
	noGap(t, m.Islet("logs", "good-edge"))
}

func requireSame(t *testing.T, before, now machine.Pod) {
	t.Helper()
	if len(now.Status.ContainerStatuses) != 1 || !now.Ready() || now.Metadata.UID != before.Metadata.UID ||
		now.Status.ContainerStatuses[0].ContainerID != before.Status.ContainerStatuses[0].ContainerID ||
		now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the good pod was disturbed: before %+v, now %+v", before, now)
	}
}
