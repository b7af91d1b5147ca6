package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// sole returns a pod whose container holds a lock on a file of the host while it runs. The container appends a line "started" to that file,
// or "twice" if another container holds the lock.
func sole(m *machine.Machine, name, extra string) string {
	return manifest(name, fmt.Sprintf(`    volumeMounts:
    - {name: shared, mountPath: /shared}
  volumes:
  - name: shared
    hostPath: {path: %s/shared, type: DirectoryOrCreate}
%s`, m.Disk, extra), "sole", "/shared/"+name)
}

// starts returns how often a pod of sole() has started. It fails the test if two of its containers ran at the same time.
func starts(t *testing.T, m *machine.Machine, name string) int {
	t.Helper()
	file := filepath.Join(m.Disk, "shared", name)
	m.Await("the program of "+name+" to write", func() bool { return fileExists(file) }) // a container is ready before its program writes
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), "twice") {
		t.Fatalf("%s ran twice at the same time:\n%s", name, b)
	}
	return strings.Count(string(b), "started")
}

// TestRunDirectoryLost deletes the run directory or a part of it while pods run, with and without a running agent. It checks that no pod
// runs twice at the same time and that no two pods have the same address. Every pod must become ready again. At the end no process may be
// left.
func TestRunDirectoryLost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]string{
		"removed":    `rm -rf /run/* 2>/dev/null; true`,
		"mounted":    `mount -t tmpfs run /run`,
		"namespaces": `umount -l /run/islet/ns/*/net && rm -rf /run/islet/ns/*/net`,
		"bundles":    `umount -l /run/islet/b/*/rootfs 2>/dev/null; rm -rf /run/islet/b/*`,
		"a bundle":   `rm -rf "$(ls -d /run/islet/b/* | head -1)"`,
		"sockets":    `rm -f /run/islet/s/*`,
		"OCI state":  `rm -rf /run/islet/oci/*`,
		"files":      `rm -rf /run/islet/sandboxes/*/resolv.conf`,
	} {
		for _, stopped := range []bool{true, false} {
			short := name == "removed" || stopped && (name == "namespaces" || name == "OCI state")
			if !short && os.Getenv("ISLET_TEST_LONG") == "" {
				continue
			}
			t.Run(fmt.Sprintf("%s/stopped=%v", name, stopped), func(t *testing.T) {
				t.Parallel()
				runLost(t, lose, stopped)
			})
		}
	}
}

func runLost(t *testing.T, lose string, stopped bool) {
	m := bootMachine(t)
	m.Write("edge.yaml", fmt.Sprintf("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\nshimPods: 2\ncniConfDir: %s/cni\n", m.Disk))
	pods := map[string]string{"a": "", "b": "", "c": "  hostNetwork: true\n", "d": "  shareProcessNamespace: true\n"}
	var names []string
	for name, extra := range pods {
		m.Write("manifests/"+name+".yaml", sole(m, name, extra))
		names = append(names, name+"-edge")
	}
	m.StartAgent()
	m.WaitReady(names...)
	if stopped {
		m.Stop()
	}
	m.Run("sh", "-c", lose)
	if !stopped {
		// The agent starts a pod while the directory is missing.
		m.Write("manifests/e.yaml", sole(m, "e", ""))
		pods["e"], names = "", append(names, "e-edge")
		m.Await("the new pod to start", func() bool { return fileExists(filepath.Join(m.Disk, "shared/e")) })
		m.Kill()
	}
	m.StartAgent()
	ready := m.WaitReady(names...)
	ips := map[string]string{}
	for name, p := range ready {
		if other, taken := ips[p.Status.PodIP]; taken && name != "c-edge" && other != "c-edge" {
			t.Errorf("%s and %s have the same address %s", name, other, p.Status.PodIP)
		}
		ips[p.Status.PodIP] = name
	}
	for name := range pods {
		m.Await(name+" to have written", func() bool { return fileExists(filepath.Join(m.Disk, "shared", name)) })
		if n := starts(t, m, name); n < 1 || n > 3 {
			t.Errorf("%s was started %d times", name, n)
		}
	}
	for name := range pods {
		m.Remove("manifests/" + name + ".yaml")
	}
	m.WaitReady()
	for name := range pods {
		starts(t, m, name)
	}
	m.Await("no process of a pod is left", func() bool {
		for _, cmd := range m.Processes() {
			if strings.Contains(cmd, "/shared/") {
				return false
			}
		}
		return true
	})
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
