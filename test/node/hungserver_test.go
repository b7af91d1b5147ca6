package node

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/islet-edge/islet/test/hungfs"
	"github.com/islet-edge/islet/test/machine"
)

// servers are the processes of the file systems whose server may hang.
func servers(m *machine.Machine) (pids []int) {
	for pid, cmd := range m.Processes() {
		if strings.HasSuffix(strings.TrimSpace(cmd), hungfs.Process) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// contained are the processes of a machine's pods.
func contained(t *testing.T, m *machine.Machine) (pids []int) {
	t.Helper()
	for _, hierarchy := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/pids"} {
		files, err := filepath.Glob(hierarchy + m.Cgroup + "/kubepods/besteffort/pod*/*/cgroup.procs")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.FieldsSeq(string(b)) {
				pid, err := strconv.Atoi(line)
				if err != nil {
					t.Fatal(err)
				}
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// asksHung reports whether a program of the agent's waits for such a server.
func asksHung(m *machine.Machine) bool {
	for pid, cmd := range m.Processes() {
		if b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", pid)); strings.HasPrefix(cmd, "stat ") &&
			(strings.Contains(string(b), "request_wait_answer") || strings.Contains(string(b), "fuse")) { // it may have ended
			return true
		}
	}
	return false
}

// onServer is a volume that hungfs mounts, on the machine of withServers.
const onServer = "nfs: {server: 10.9.9.9, path: /export}"

// withServers gives a machine whose volumes of NFS are each served by a process of their own,
// and the program that does it.
func withServers(t *testing.T) (m *machine.Machine, exe string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m = machine.New(t, "edge")
	m.InstallImage()
	m.Boot()
	nfsProgram(t, m, "exec "+exe+" "+hungfs.Process+" \"$2\"")
	return m, exe
}

// servedPod is the manifest of a pod that mounts a volume, or what is below it.
func servedPod(name, volume, below string) string {
	return strings.Replace(manifest(name, "  volumes: [{name: data, "+volume+"}]\n", "sleep"), "    image:",
		"    volumeMounts: [{name: data, mountPath: /data"+below+"}]\n    image:", 1)
}

// signalAll sends one to each of so many processes.
func signalAll(t *testing.T, many int, pids []int, s syscall.Signal) {
	t.Helper()
	if len(pids) != many {
		t.Fatalf("processes %v", pids)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, s); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHungServer: containers are to get a directory of a volume whose server has stopped to
// answer, which the agent finds mounted when it starts. They wait, and nothing else of the node
// does: not other pods, nor commands, nor the end of the agent and its next start, also by
// kill -9, nor the end of such pods. When the server is back they start.
func TestHungServer(t *testing.T) {
	t.Parallel()
	m, exe := withServers(t)
	const below = ", subPath: " + hungfs.Dir
	for name, sub := range map[string]string{"whole": "", "sub": below, "going": below} {
		m.Write("manifests/"+name+".yaml", servedPod(name, onServer, sub))
	}
	// And a path of the host that is on such a server.
	mounted := m.Disk + "/mounted"
	if err := os.Mkdir(mounted, 0o755); err != nil {
		t.Fatal(err)
	}
	m.Run(exe, hungfs.Process, mounted)
	m.Write("manifests/host.yaml", servedPod("host", "hostPath: {path: "+mounted+"}", below))
	m.StartAgent()
	m.WaitReady("whole-edge", "sub-edge", "going-edge", "host-edge")
	m.Kill()
	stopped := servers(m)
	signalAll(t, 4, stopped, syscall.SIGSTOP)
	signalAll(t, 4, contained(t, m), syscall.SIGKILL)
	m.StartAgent()
	hung := func() {
		t.Helper()
		m.Await("the agent to wait for the server", func() bool { return asksHung(m) })
	}
	hung()
	m.Await("the node to say what the pod waits for",
		func() bool { return strings.Contains(m.Islet("describe", "sub-edge"), "does not answer") })
	for i, end := range []func(){m.Stop, m.Kill} {
		name := fmt.Sprint("other", i)
		m.Write("manifests/other.yaml", manifest(name, "", "sleep"))
		m.WaitPods("another pod to start", func(pods map[string]machine.Pod) bool {
			return pods[name+"-edge"].Ready() && !pods["whole-edge"].Ready() && !pods["sub-edge"].Ready() && !pods["host-edge"].Ready()
		})
		m.Remove("manifests/other.yaml")
		m.WaitPods("the other pod to be gone", func(pods map[string]machine.Pod) bool { return len(pods) == 4 })
		end()
		m.StartAgent()
		hung()
	}
	m.Remove("manifests/going.yaml")
	m.Remove("manifests/host.yaml")
	m.WaitPods("the pods to be gone", func(pods map[string]machine.Pod) bool { return len(pods) == 2 })
	for pid := range m.Processes() {
		if slices.Contains(stopped, pid) { // the server of the pod that is gone has ended
			if err := syscall.Kill(pid, syscall.SIGCONT); err != nil && err != syscall.ESRCH {
				t.Fatal(err)
			}
		}
	}
	m.WaitReady("whole-edge", "sub-edge")
	m.Remove("manifests/whole.yaml")
	m.Remove("manifests/sub.yaml")
	m.WaitReady()
	m.Await("all to be unmounted", func() bool {
		return !slices.ContainsFunc(m.Mounts(), func(p string) bool { return strings.Contains(p, "/pods/") })
	})
}

// TestDeafServer: the process of a file system has taken the agent's question and does not
// answer: of a volume, of what is below one, and of a path of the host, also by a link. The
// kernel lets nobody go who waits for that, and yet an agent that was killed meanwhile has a
// successor; the pods can be deleted.
func TestDeafServer(t *testing.T) {
	t.Parallel()
	m, exe := withServers(t)
	m.Write("manifests/one.yaml", servedPod("one", onServer, ""))
	m.Write("manifests/sub.yaml", servedPod("sub", onServer, ", subPath: "+hungfs.Dir))
	mounted, link := m.Disk+"/mounted", m.Disk+"/link"
	if err := os.Mkdir(mounted, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(mounted, link); err != nil {
		t.Fatal(err)
	}
	m.Run(exe, hungfs.Process, mounted)
	m.Write("manifests/host.yaml", servedPod("host", "hostPath: {path: "+link+"}", ""))
	pods := []string{"one-edge", "sub-edge", "host-edge"}
	m.StartAgent()
	m.WaitReady(pods...)
	m.Kill()
	signalAll(t, 3, servers(m), hungfs.Deaf)
	signalAll(t, 3, contained(t, m), syscall.SIGKILL)
	for range 2 {
		m.StartAgent()
		for _, pod := range pods {
			m.Await("the node to say what the pod waits for", func() bool { return strings.Contains(m.Islet("describe", pod), "does not answer") })
		}
		m.Kill()
	}
	m.StartAgent()
	for _, name := range []string{"one", "sub", "host"} {
		m.Remove("manifests/" + name + ".yaml")
	}
	m.WaitReady()
	m.Await("all to be unmounted", func() bool {
		return !slices.ContainsFunc(m.Mounts(), func(p string) bool { return strings.Contains(p, "/pods/") })
	})
}
