package node

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// partition makes the machine's disk a separate mount. Therefore freeze() can make this mount read-only until the next boot.
func partition(m *machine.Machine) { m.Run("mount", "--bind", m.Disk, m.Disk) }

// freeze makes the disk read-only in the machine. The kernel does this when a disk fails. With a failing card, the disk is also read-only
// after a boot.
func freeze(m *machine.Machine) {
	m.Run("mount", "-o", "remount,bind,ro", m.Disk)
	if pods := m.Disk + "/kubelet/pods"; slices.Contains(m.Mounts(), pods) { // the agent's mount of the same disk
		m.Run("mount", "-o", "remount,bind,ro", pods)
	}
}

// disk returns the modes and modification times of all files on the disk.
func disk(t *testing.T, m *machine.Machine) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range []string{"state", "kubelet", "logs"} {
		err := filepath.Walk(filepath.Join(m.Disk, dir), func(path string, info os.FileInfo, err error) error {
			if err == nil {
				all.WriteString(path + info.Mode().String() + info.ModTime().String() + "\n")
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

// volatile returns the mounts of the overlay in memory.
func volatile(m *machine.Machine) []string {
	var found []string
	for line := range strings.Lines(m.Run("cat", "/proc/self/mountinfo")) {
		if strings.Contains(line, " islet-volatile ") {
			found = append(found, line)
		}
	}
	return found
}

// flags returns the flags of an agent with the given run directory.
func flags(m *machine.Machine, run string) []string {
	return []string{"--root-dir=" + m.Disk + "/kubelet", "--state-dir=" + m.Disk + "/state", "--run-dir=" + run, "--config=" + m.Disk + "/kubelet.yaml", "--edge-config=" + m.Disk + "/edge.yaml"}
}

// saysVolatile checks that the node reports its read-only disk in its status, its events, islet doctor and the log. The log has the message
// of the event.
func saysVolatile(t *testing.T, m *machine.Machine) {
	t.Helper()
	for _, args := range [][]string{{"status"}, {"events"}, append([]string{"doctor", "--all"}, flags(m, "/run/islet")...)} {
		if out, _ := m.Try(args...); !strings.Contains(out, m.Disk+"/state") || !strings.Contains(out, "takes no writes") ||
			!strings.Contains(out, "lost at the next boot") {
			t.Errorf("islet %s does not report the read-only disk:\n%s", args[0], out)
		}
	}
	var events []struct{ Reason, Message string }
	if err := json.Unmarshal([]byte(m.Islet("events", "-o", "json")), &events); err != nil {
		t.Fatal(err)
	}
	log := m.AgentLog(1 << 20)
	reported := false
	for _, e := range events {
		reported = reported || e.Reason == "FilesystemIsReadOnly" && e.Message != "" && strings.Contains(log, e.Message)
	}
	if !reported {
		t.Errorf("the log does not have the message of the event: %+v", events)
	}
}

// TestReadOnlyDisk boots a node with a read-only disk. It checks that the pods run with the data on the disk. Everything that the pods and
// the node write must be lost at the next boot.
func TestReadOnlyDisk(t *testing.T) {
	t.Parallel()
	m, names := fleet(t, 2)
	m.Write("applied.yaml", manifest("applied", "    volumeMounts: [{name: v, mountPath: /v}]\n  volumes: [{name: v, emptyDir: {}}]\n",
		"sleep"))
	m.Islet("apply", "-f", m.Disk+"/applied.yaml")
	names = append(names, "applied")
	before := containers(m.WaitReady(names...))
	m.Islet("exec", "applied", "--", "/podtool", "write", "/v/kept", "before")
	m.Kill()
	m.PowerOff()
	was := disk(t, m)

	m.Boot()
	partition(m)
	freeze(m)
	m.StartAgent()
	pods := m.WaitReady(names...)
	if n := changed(before, pods); n != len(names) {
		t.Errorf("%d of %d pods have new containers after a boot", n, len(names))
	}
	saysVolatile(t, m)
	if out, err := m.Command(m.Binary(), flags(m, "/run/other")...).CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "another agent uses "+m.Disk+"/state") {
		t.Errorf("a second agent is not rejected: %v\n%s", err, out)
	}
	if out := m.Islet("exec", "applied", "--", "/podtool", "cat", "/v/kept"); out != "before" {
		t.Errorf("the volume has %q", out)
	}
	for _, path := range []string{"/v/kept", "/new"} { // in a volume and in the root file system
		m.Islet("exec", "applied", "--", "/podtool", "write", path, "lost")
	}

	// After a SIGKILL in this mode, the agent continues with the data in memory.
	before, ended := containers(pods), restarts(pods)
	layer := strings.Join(volatile(m), "")
	m.Kill()
	m.StartAgent()
	pods = m.WaitReady(names...)
	if n := changed(before, pods); n != 0 || restarts(pods) != ended {
		t.Errorf("%d pods were replaced, %d containers restarted", n, restarts(pods)-ended)
	}
	saysVolatile(t, m)
	if now := strings.Join(volatile(m), ""); now != layer {
		t.Errorf("mounts before the restart\n%s\nand after\n%s", layer, now)
	}
	if out := m.Islet("exec", "applied", "--", "/podtool", "cat", "/v/kept"); out != "beforelost" {
		t.Errorf("the volume has %q", out)
	}
	m.Islet("delete", "applied")
	m.WaitReady(names[:2]...)
	m.Kill()
	m.PowerOff()
	if disk(t, m) != was {
		t.Error("the disk was changed")
	}

	m.Boot()
	m.StartAgent()
	m.WaitReady(names...)
	if left := volatile(m); len(left) > 0 {
		t.Errorf("the overlay is still mounted: %q", left)
	}
	if out, _ := m.Try("status"); strings.Contains(out, "takes no writes") {
		t.Errorf("status still reports the read-only disk:\n%s", out)
	}
	if out := m.Islet("exec", "applied", "--", "/podtool", "cat", "/v/kept"); out != "before" {
		t.Errorf("the volume has %q", out)
	}
}

// TestDiskTurnsReadOnly checks that pods continue to run when the disk becomes read-only and the agent restarts. Pods must be deletable,
// and islet cleanup must remove everything.
func TestDiskTurnsReadOnly(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	partition(m)
	m.Write("manifests/plain.yaml", manifest("plain", "", "count", "100ms"))
	m.Write("manifests/rich.yaml", strings.ReplaceAll(rich, "IMAGE", machine.Image))
	m.StartAgent()
	names := []string{"plain-edge", "rich-edge"}
	before := containers(m.WaitReady(names...))
	m.Kill()
	freeze(m)
	m.StartAgent()
	pods := m.WaitReady(names...)
	if n := changed(before, pods); n != 0 || restarts(pods) != 0 {
		t.Errorf("%d pods were replaced, %d containers restarted", n, restarts(pods))
	}
	saysVolatile(t, m)
	if out := m.Islet("exec", "rich-edge", "-c", "c", "--", "/podtool", "cat", "/data/greeting"); !strings.Contains(out, "from") {
		t.Errorf("the volume has %q", out)
	}
	m.Remove("manifests/rich.yaml")
	m.Write("manifests/new.yaml", manifest("new", "", "count", "100ms"))
	m.WaitReady("plain-edge", "new-edge")
	m.Await("the new pod's log", func() bool { return strings.HasPrefix(m.Islet("logs", "new-edge"), "0\n1\n") })
	m.Stop()
	m.Run(m.Binary(), append([]string{"cleanup"}, flags(m, "/run/islet")...)...)
	if left := volatile(m); len(left) > 0 {
		t.Errorf("cleanup left %q", left)
	}
	if left := m.ContainerProcesses(); len(left) > 0 {
		t.Errorf("cleanup left %v", left)
	}
	if out, err := m.Command("touch", m.Disk+"/state/x").CombinedOutput(); err == nil {
		t.Errorf("the disk is writable: %s", out)
	}
	m.Run("umount", m.Disk)
	m.StartAgent()
	m.WaitReady("plain-edge", "new-edge")
}
