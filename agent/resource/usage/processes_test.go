package usage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/metrics/process"
	"github.com/islet-edge/islet/metrics/sample"
)

// TestPodProcesses checks that the processes of a container's cgroup belong to this container.
func TestPodProcesses(t *testing.T) {
	u, _ := node(t)
	root := t.TempDir()
	for _, path := range []string{"", "/kubepods", "/kubepods/poduid-plain", "/kubepods/poduid-plain/c1"} {
		write(t, filepath.Join(root, "memory", path, "memory.usage_in_bytes"), "1000\n")
		write(t, filepath.Join(root, "memory", path, "cgroup.procs"), "")
	}
	write(t, filepath.Join(root, "memory/kubepods/poduid-plain/c1/cgroup.procs"), fmt.Sprintf("%d\n%d\n", os.Getpid(), 1<<30))
	u.c.Sampler = sample.New(sample.Config{Cgroups: cgroup.NewRecent(cgroup.NewReader(root), 0), Process: process.Reader{}, Pods: "/kubepods"})
	got, err := u.PodProcesses(t.Context(), "uid-plain")
	if err != nil || !got.Whole || len(got.List) != 1 || got.List[0].Container != "main" ||
		got.List[0].HostPID != os.Getpid() || got.List[0].Memory == 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := u.PodProcesses(t.Context(), "none"); err != nil || len(got.List) != 0 || got.List == nil {
		t.Errorf("an unknown pod: %+v, %v", got, err)
	}
	u.c.Sampler = nil
	if _, err := u.PodProcesses(t.Context(), "uid-plain"); !errors.Is(err, errNoGroups) {
		t.Errorf("without cgroups: %v", err)
	}
}
