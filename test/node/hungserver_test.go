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

// servers returns the processes of the FUSE servers in a machine.
func servers(m *machine.Machine) (pids []int) {
	for pid, cmd := range m.Processes() {
		if strings.HasSuffix(strings.TrimSpace(cmd), hungfs.Process) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// contained returns the processes of a machine's pods.
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

// asksHung reports whether a child process of the agent waits for a FUSE server.
func asksHung(m *machine.Machine) bool {
	for pid, cmd := range m.Processes() {
		if b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", pid)); strings.HasPrefix(cmd, "stat ") &&
			(strings.Contains(string(b), "request_wait_answer") || strings.Contains(string(b), "fuse")) { // the process may have exited
			return true
		}
	}
	return false
}

// onServer is an NFS volume for pods on a machine of withServers(). The program hungfs mounts this volume.
const onServer = "nfs: {server: 10.9.9.9, path: /export}"

// withServers returns a machine on which a separate FUSE process serves each NFS volume. It also returns the program of these processes.
func withServers(t *testing.T) (m *machine.Machine, exe string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m = bootMachine(t)
	nfsProgram(t, m, "exec "+exe+" "+hungfs.Process+" \"$2\"")
	return m, exe
}

// servedPod returns a pod that mounts a volume, with further fields of its volume mount.
func servedPod(name, volume, below string) string {
	return strings.Replace(manifest(name, "  volumes: [{name: data, "+volume+"}]\n", "sleep"), "    image:",
		"    volumeMounts: [{name: data, mountPath: /data"+below+"}]\n    image:", 1)
}

// signalAll sends a signal to processes. It fails the test if their number is not the expected number.
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

// TestHungServer checks volumes whose servers do not respond. Only the start of containers that use these volumes may be blocked. The
// volumes are mounted before the agent starts. These actions must not wait for the servers: other pods, commands, the exit or SIGKILL of
// the agent, the agent's next start, and the deletion of the pods with these volumes. The containers must start when the servers respond
// again.
func TestHungServer(t *testing.T) {
	t.Parallel()
	m, exe := withServers(t)
	const below = ", subPath: " + hungfs.Dir
	for name, sub := range map[string]string{"whole": "", "sub": below, "going": below} {
		m.Write("manifests/"+name+".yaml", servedPod(name, onServer, sub))
	}
	// A directory of the host is also on such a server.
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
	m.Await("the node to report the reason",
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
		if slices.Contains(stopped, pid) { // the server of the deleted pod has exited
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

// TestHungMessage mounts a file of the host at the path of a container's termination message. The server of that file does not respond when
// the container ends. Other pods must start, also after a restart of the agent, and the pod must be deletable.
func TestHungMessage(t *testing.T) {
	t.Parallel()
	m, exe := withServers(t)
	dir := m.Disk + "/served"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/message", []byte("of the volume"), 0o666); err != nil {
		t.Fatal(err)
	}
	pod := manifest("one", "  volumes: [{name: data, hostPath: {path: "+dir+"/message}}]\n", "sleep")
	pod = strings.Replace(pod, "    image:", "    volumeMounts: [{name: data, mountPath: /dev/termination-log}]\n    image:", 1)
	m.Write("manifests/one.yaml", pod)
	m.StartAgent()
	m.WaitReady("one-edge")
	m.Run(exe, hungfs.Process, dir)
	stopped := servers(m)
	signalAll(t, 1, stopped, syscall.SIGSTOP)
	signalAll(t, 1, contained(t, m), syscall.SIGKILL)
	for i, end := range []func(){m.Stop, m.Kill} {
		name := fmt.Sprint("other", i)
		m.Write("manifests/other.yaml", manifest(name, "", "sleep"))
		m.WaitPods("another pod to start", func(pods map[string]machine.Pod) bool {
			return pods[name+"-edge"].Ready() && !pods["one-edge"].Ready()
		})
		end()
		m.StartAgent()
	}
	m.Remove("manifests/one.yaml")
	m.Remove("manifests/other.yaml")
	m.WaitReady()
	if err := syscall.Kill(stopped[0], syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// TestDeafServer checks that a killed agent can restart while a request to a file system never gets a response. The kernel does not even
// kill a process that waits for this response. The request concerns a volume, a directory of a volume, or a path of the host behind a
// symbolic link. The pods must be deletable.
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
			m.Await("the node to report the reason", func() bool { return strings.Contains(m.Islet("describe", pod), "does not answer") })
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
