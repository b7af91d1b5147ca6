package node

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// TestLogQuotaAndFlashBudget checks that the logs of a pod stay within their quota, even if the limit of log files is higher. If a node
// writes more than its daily budget, it must report this with the amounts.
func TestLogQuotaAndFlashBudget(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.Write("kubelet.yaml", m.Kubelet("containerLogMaxSize: 200Ki\ncontainerLogMaxFiles: 20\ncontainerLogMonitorInterval: 3s\n"))
	m.Write("edge.yaml", fmt.Sprintf(
		"apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: %s/cni\npodLogQuota: 1Mi\nflashBudget: 1Mi\n", m.Disk))
	m.Write("data/lines", lines(5<<20))
	m.Write("manifests/talks.yaml", manifest("talks",
		fmt.Sprintf("    volumeMounts: [{name: v, mountPath: /v}]\n  volumes: [{name: v, hostPath: {path: %s/data}}]\n", m.Disk), "cat",
		"/v/lines"))
	m.StartAgent()
	m.WaitPods("the pod to have written its log", func(pods map[string]machine.Pod) bool {
		p := pods["talks-edge"]
		return len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].RestartCount > 0
	})
	m.Await("its logs to be within the quota, with files that were rotated", func() bool {
		rotated, err := filepath.Glob(filepath.Join(m.Disk, "logs", "*talks*", "c", "*.log.*"))
		return err == nil && len(rotated) > 0 && onDisk(t, filepath.Join(m.Disk, "logs")) <= 1<<20
	})

	m.Kill()
	m.StartAgent() // the agent checks the budget when it starts
	m.Await("the budget to be said to be exceeded", func() bool { return strings.Contains(m.Islet("events"), "FlashBudgetExceeded") })
	var s struct {
		Flash struct {
			Budget   uint64
			Exceeded bool
			Today    struct{ Logs, Stack uint64 }
		}
	}
	out, code := m.Try("status", "-o", "json")
	if err := json.NewDecoder(strings.NewReader(out)).Decode(&s); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !strings.Contains(out, "more was written to the disk today than flashBudget allows") || code != 1 {
		t.Errorf("status exits with %d: %s", code, out)
	}
	if f := s.Flash; f.Budget != 1<<20 || !f.Exceeded || f.Today.Logs < 5<<20 || f.Today.Stack < f.Today.Logs {
		t.Errorf("status has %+v", f)
	}
}

// lines returns a text of the given size that hardly compresses.
func lines(bytes int) string {
	random, line := rand.NewChaCha8([32]byte{}), make([]byte, 750)
	var b strings.Builder
	for b.Len() < bytes {
		random.Read(line)
		b.WriteString(base64.StdEncoding.EncodeToString(line) + "\n")
	}
	return b.String()
}

// onDisk returns the disk usage of the files below a directory. It ignores files that are deleted meanwhile.
func onDisk(t *testing.T, dir string) (sum int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, e os.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			return nil
		}
		sum += info.Sys().(*syscall.Stat_t).Blocks * 512
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return sum
}
