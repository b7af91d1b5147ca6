package node

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

const usersPod = `apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  CLASS
  hostUsers: false
  terminationGracePeriodSeconds: 1
  securityContext: {fsGroup: 3000}
  volumes:
  - {name: disk, emptyDir: {}}
  - {name: memory, emptyDir: {medium: Memory}}
  - {name: host, hostPath: {path: DISK/host}}
  containers:
  - name: c
    image: IMAGE
    imagePullPolicy: Never
    args: [serve, ":80"]
    terminationMessagePath: /dev/termination-log
    volumeMounts: [{name: disk, mountPath: /disk}, {name: memory, mountPath: /memory}, {name: host, mountPath: /host}]
  - {name: unmasked, image: IMAGE, imagePullPolicy: Never, args: [sleep], securityContext: {procMount: Unmasked}}
`

// owner returns the UID and GID of a file on the host.
func owner(t *testing.T, path string) string {
	t.Helper()
	st, err := os.Lstat(path)
	if err != nil {
		return err.Error()
	}
	sys := st.Sys().(*syscall.Stat_t)
	return fmt.Sprint(sys.Uid, ":", sys.Gid)
}

// users returns the UID mapping of a container's user namespace.
func users(m *machine.Machine, pod, container string) string {
	return strings.Join(strings.Fields(m.Islet("exec", pod, "-c", container, "--", "/podtool", "cat", "/proc/self/uid_map")), " ")
}

// TestUserNamespaces checks pods with hostUsers: false. Each pod must have a separate range of IDs, and keep it after a SIGKILL of the
// agent, a restart of the sandbox and a reboot. Files in volumes must have the same owners as the files of other pods. If the OCI runtime
// does not support user namespaces, the event must have the message of a kubelet.
func TestUserNamespaces(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.SetHandlers(map[string]string{"new": machine.Runc(t)})
	pod := func(name, class string) {
		m.Write("manifests/"+name+".yaml", strings.NewReplacer("NAME", name, "CLASS", class, "IMAGE", machine.Image, "DISK",
			m.Disk).Replace(usersPod))
	}
	pod("a", "runtimeClassName: new")
	pod("b", "runtimeClassName: new")
	m.StartAgent()
	m.WaitReady("a-edge", "b-edge")
	a, b := users(m, "a-edge", "c"), users(m, "b-edge", "c")
	if ok := regexp.MustCompile(`^0 (65536|131072) 65536$`).MatchString; !ok(a) || !ok(b) || a == b || users(m, "a-edge", "unmasked") != a {
		t.Errorf("user namespaces %q and %q", a, b)
	}
	first := strings.Fields(a)[1]
	expectVolumes(t, m, first)
	ip := m.Pods()["b-edge"].Status.PodIP
	if out := m.Islet("exec", "a-edge", "-c", "c", "--", "/podtool", "get", "http://"+ip); !strings.Contains(out, "b-edge") {
		t.Errorf("the response of the other pod is %q", out)
	}
	if out := m.Islet("exec", "a-edge", "-c", "c", "--", "/podtool", "cat", "/etc/hosts", "/etc/hostname"); !strings.Contains(out, "a-edge") {
		t.Errorf("the files of the pod contain %q", out)
	}

	pod("old", "") // the node's default OCI runtime, which has no user namespaces on Debian 12
	if strings.Contains(m.Run("runc", "features"), `"idmap"`) {
		m.WaitReady("old-edge")
	} else {
		m.WaitPods("the pod to be refused", func(pods map[string]machine.Pod) bool {
			_, there := pods["old-edge"]
			return there && strings.Contains(m.Islet("describe", "old-edge"), "FailedCreatePodSandBox")
		})
		if events := m.Islet("describe", "old-edge"); !strings.Contains(events,
			"can't set `spec.hostUsers: false`, runtime does not support user namespaces") {
			t.Errorf("the events of the rejected pod are\n%s", events)
		}
	}

	m.Kill()
	m.StartAgent()
	m.Islet("restart", "a-edge")
	if now := users(m, "a-edge", "c"); now != a {
		t.Errorf("the user namespace after the agent was killed is %q, before %q", now, a)
	}
	m.PowerOff()
	m.Boot()
	m.Remove("manifests/b.yaml")
	m.Remove("manifests/old.yaml")
	pod("d", "runtimeClassName: new")
	m.StartAgent()
	m.WaitReady("a-edge", "d-edge")
	if now, d := users(m, "a-edge", "c"), users(m, "d-edge", "c"); now != a || d == a {
		t.Errorf("the user namespace after a reboot is %q, before %q; that of the other pod is %q", now, a, d)
	}
	if left, _ := filepath.Glob(filepath.Join(m.Disk, "kubelet/pods/*/userns")); len(left) != 2 {
		t.Errorf("files of user namespaces: %q", left)
	}
}

// expectVolumes checks the owners of files that a pod writes. The last argument is the UID on the host for the root user of the pod.
func expectVolumes(t *testing.T, m *machine.Machine, first string) {
	t.Helper()
	for _, path := range []string{"/disk/x", "/memory/x", "/host/x", "/root-x", "/dev/termination-log"} {
		if out, code := m.Try("exec", "a-edge", "-c", "c", "--", "/podtool", "write", path, "hello"); code != 0 {
			t.Errorf("write %s: %s", path, out)
		}
	}
	uid := m.Pods()["a-edge"].Metadata.UID
	volumes := filepath.Join(m.Disk, "kubelet/pods", uid, "volumes/kubernetes.io~empty-dir")
	pid := 0
	for p, name := range m.ContainerProcesses() {
		if own := owner(t, fmt.Sprintf("/proc/%d/root/root-x", p)); own == first+":"+first && strings.Contains(name, "serve") {
			pid = p
		}
	}
	if pid == 0 {
		t.Errorf("no process of %v has the file of UID %s", m.ContainerProcesses(), first)
	}
	for path, want := range map[string]string{
		filepath.Join(m.Disk, "host/x"):  "0:0",
		filepath.Join(volumes, "disk/x"): "0:3000",
		filepath.Join(volumes, "memory"): "0:3000",
	} {
		if got := owner(t, path); got != want {
			t.Errorf("%s belongs to %s, not to %s", path, got, want)
		}
	}
}
