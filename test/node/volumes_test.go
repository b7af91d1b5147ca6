package node

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// nfsHelper installs a mount.nfs that bind-mounts a local directory, because the host's kernel may not support NFS. The program hangs
// while the file hang exists.
func nfsHelper(t *testing.T, m *machine.Machine, export, hang string) {
	t.Helper()
	nfsProgram(t, m, "if [ -e "+hang+" ]; then sleep 1000; fi\nexec mount --bind "+export+" \"$2\"")
}

// nfsProgram installs a mount.nfs that runs shell commands. In the commands, "$2" is the mount point.
func nfsProgram(t *testing.T, m *machine.Machine, commands string) {
	t.Helper()
	over := m.Disk + "/sbin"
	if err := os.MkdirAll(over, 0o755); err != nil {
		t.Fatal(err)
	}
	m.Run("mount", "-t", "tmpfs", "tmpfs", over)
	m.Run("mkdir", over+"/upper", over+"/work")
	m.Run("mount", "-t", "overlay", "overlay", "-o", "lowerdir=/usr/sbin,upperdir="+over+"/upper,workdir="+over+"/work", "/usr/sbin")
	script := "#!/bin/sh\n" + commands + "\n"
	m.Run("sh", "-c", "printf %s '"+script+"' >/usr/sbin/mount.nfs && chmod +x /usr/sbin/mount.nfs")
}

// TestNFS checks that pods mount NFS volumes, also after a SIGKILL of the agent and a reboot. A pod whose server does not respond must
// wait and report the reason. It must not block other pods, and must be deletable. At the end no volume may be mounted, and all written
// data must exist.
func TestNFS(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	export, hang := m.Disk+"/export", m.Disk+"/hang"
	if err := os.MkdirAll(export, 0o755); err != nil {
		t.Fatal(err)
	}
	nfsHelper(t, m, export, hang)
	const volume = "  volumes: [{name: data, nfs: {server: 10.9.9.9, path: /export}}]\n"
	pod := func(name string) string {
		return strings.Replace(manifest(name, volume, "sleep"), "    image:", "    volumeMounts: [{name: data, mountPath: /data}]\n    image:", 1)
	}
	m.Write("manifests/one.yaml", pod("one"))
	m.StartAgent()
	m.WaitReady("one-edge")
	m.Islet("exec", "one-edge", "--", "/podtool", "write", "/data/file", "kept")
	volumes := func() []string {
		return slices.DeleteFunc(m.Mounts(), func(p string) bool { return !strings.Contains(p, "kubernetes.io~nfs") })
	}
	if got := volumes(); len(got) != 1 || !strings.HasSuffix(got[0], "/volumes/kubernetes.io~nfs/data") {
		t.Errorf("mounted: %q", got)
	}
	m.Kill()
	m.StartAgent()
	m.WaitReady("one-edge")
	m.PowerOff()
	m.Boot()
	nfsHelper(t, m, export, hang)
	m.StartAgent()
	m.WaitReady("one-edge")
	if got := m.Islet("exec", "one-edge", "--", "/podtool", "cat", "/data/file"); !strings.HasPrefix(got, "kept") || len(volumes()) != 1 {
		t.Errorf("after a reboot the file contains %q, mounted: %q", got, volumes())
	}

	if err := os.WriteFile(hang, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m.Write("manifests/stuck.yaml", pod("stuck"))
	m.Await("the node to report the reason", func() bool {
		out, _ := m.Try("describe", "stuck-edge")
		return strings.Contains(out, "its server or driver does not answer")
	})
	m.Write("manifests/other.yaml", manifest("other", "", "sleep"))
	m.WaitPods("another pod to start meanwhile", func(pods map[string]machine.Pod) bool {
		return pods["one-edge"].Ready() &&
			pods["other-edge"].Ready()
	})
	m.Remove("manifests/stuck.yaml")
	m.WaitPods("the pod that waits to be gone", func(pods map[string]machine.Pod) bool { return len(pods) == 2 })
	m.Kill()
	m.Remove("manifests/one.yaml") // no agent runs
	m.StartAgent()
	m.WaitPods("the pod with the volume to be gone", func(pods map[string]machine.Pod) bool { return len(pods) == 1 })
	m.Await("all to be unmounted", func() bool { return len(volumes()) == 0 })
	if b, err := os.ReadFile(filepath.Join(export, "file")); err != nil || !strings.HasPrefix(string(b), "kept") {
		t.Errorf("%q: %v", b, err)
	}
}
