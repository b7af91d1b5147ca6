package node

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// fleetAndApplied is like fleet, with another pod that was applied on the node. It also returns the containers of all pods.
func fleetAndApplied(t *testing.T, pods int) (*machine.Machine, []string, map[string]string) {
	t.Helper()
	m, names := fleet(t, pods)
	m.Write("applied.yaml", manifest("applied", "", "count", "100ms"))
	m.Islet("apply", "-f", m.Disk+"/applied.yaml")
	names = append(names, "applied")
	return m, names, containers(m.WaitReady(names...))
}

// TestBrokenStore corrupts the database of a node while pods run. It checks that the agent moves the database aside, and rebuilds the
// state from the sources of pods and the running containers.
func TestBrokenStore(t *testing.T) {
	t.Parallel()
	m, names, before := fleetAndApplied(t, 3)
	m.Kill()
	db := filepath.Join(m.Disk, "state/islet.db")
	b, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	for i := 100; i < len(b); i += 7 {
		b[i] ^= 0x5a
	}
	if err := os.WriteFile(db, b, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"-wal", "-shm"} {
		os.Remove(db + suffix)
	}
	m.StartAgent()
	pods := m.WaitReady(names...)
	if n := changed(before, pods); n != 0 || restarts(pods) != 0 {
		t.Errorf("%d pods were replaced, %d containers restarted", n, restarts(pods))
	}
	aside, err := filepath.Glob(db + ".corrupt-*")
	if err != nil || len(aside) == 0 {
		t.Errorf("the corrupt database was not moved aside: %q, %v", aside, err)
	}
	if out, _ := m.Try("status"); !strings.Contains(out, aside[0]) {
		t.Errorf("status does not name the corrupt database:\n%s", out)
	}
	// Applied pods still exist, and a new pod gets a free address.
	m.Write("manifests/new.yaml", manifest("new", "", "sleep"))
	pods = m.WaitReady(append(names, "new-edge")...)
	seen := map[string]string{}
	for n, p := range pods {
		if other := seen[p.Status.PodIP]; other != "" {
			t.Errorf("%s and %s have the address %s", n, other, p.Status.PodIP)
		}
		seen[p.Status.PodIP] = n
	}
	m.Islet("delete", "applied")
	m.WaitReady("p0-edge", "p1-edge", "p2-edge", "new-edge")
}

// TestDeletedStore deletes the database of a node while pods run, and while the machine is off. Pods that were applied on the node have no
// other source, so they must be restored from the running containers. They must be restarted when they exit, and must be deletable.
func TestDeletedStore(t *testing.T) {
	t.Parallel()
	m, names, before := fleetAndApplied(t, 2)
	deleteStore := func() {
		for _, suffix := range []string{"", "-wal", "-shm"} {
			if err := os.Remove(filepath.Join(m.Disk, "state/islet.db"+suffix)); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
		}
	}
	m.Kill()
	deleteStore()
	m.StartAgent()
	pods := m.WaitReady(names...)
	if n := changed(before, pods); n != 0 || restarts(pods) != 0 {
		t.Errorf("%d pods were replaced, %d containers restarted", n, restarts(pods))
	}
	seen := map[string]string{}
	for n, p := range pods {
		if other := seen[p.Status.PodIP]; other != "" {
			t.Errorf("%s and %s have the address %s", n, other, p.Status.PodIP)
		}
		seen[p.Status.PodIP] = n
	}
	for _, pid := range shims(m) {
		kill(t, pid)
	}
	m.WaitPods("every pod to run again", func(pods map[string]machine.Pod) bool {
		return changed(before, pods) == len(names) && areReady(pods, names)
	})
	before = containers(m.Pods())
	m.PowerOff()
	deleteStore()
	m.Boot()
	m.StartAgent()
	m.WaitPods("every pod to run after the boot", func(pods map[string]machine.Pod) bool {
		return changed(before, pods) == len(names) && areReady(pods, names)
	})
	m.Islet("delete", "applied")
	m.WaitReady("p0-edge", "p1-edge")
}

// TestFullDisk checks that pods continue to run when the disk of the state directory is full. The node must continue to work when space is
// free again.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	m := machine.New(t, "edge")
	m.Boot()
	state := filepath.Join(m.Disk, "state")
	m.Run("mkdir", "-p", state+"/images")
	m.Run("mount", "-t", "tmpfs", "-o", "size=128m", "state", state)
	m.Run("mkdir", "-p", state+"/images")
	m.Run("cp", machine.Archive(t), state+"/images/podtool.tar")
	m.Write("manifests/a.yaml", manifest("a", "", "count", "10ms"))
	m.StartAgent()
	before := m.WaitReady("a-edge")["a-edge"]

	m.Command("dd", "if=/dev/zero", "of="+state+"/fill", "bs=64k").Run() // ends because the disk is full
	m.Write("b.yaml", manifest("b", "", "sleep"))
	out, code := m.Try("apply", "-f", m.Disk+"/b.yaml")
	if code == 0 {
		// The database file had free space inside, so the pod was stored. The pod must run when the disk has free space again.
		t.Logf("applied in spite of the full disk: %s", out)
	} else if !strings.Contains(out, "no space left") {
		t.Errorf("the error does not name the disk: %s", out)
	}
	if out, code := m.Try("images", "import", machine.Archive(t)); code != 0 && !strings.Contains(out, "no space left") &&
		!strings.Contains(out, "disk") {
		t.Errorf("the error of the import does not name the disk: %s", out)
	}
	m.Write("manifests/c.yaml", manifest("c", "", "sleep"))
	m.Await("the full disk to be logged", func() bool {
		return strings.Contains(m.AgentLog(1<<20), "no space left")
	})
	requireSame(t, before, m.Pods()["a-edge"])

	m.Run("rm", state+"/fill")
	m.Islet("apply", "-f", m.Disk+"/b.yaml")
	pods := m.WaitReady("a-edge", "b", "c-edge")
	requireSame(t, before, pods["a-edge"])
	noGap(t, m.Islet("logs", "a-edge"))
}

// TestStoreDamagedWhileRunning overwrites the database while the agent runs, except its first page. The agent finds the damage by itself.
// After kill -9, the next agent has all objects of islet apply, which nobody else has.
func TestStoreDamagedWhileRunning(t *testing.T) {
	t.Parallel()
	m, names := fleet(t, 1)
	m.Write("config.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {a: b}\n")
	m.Islet("apply", "-f", m.Disk+"/config.yaml")
	before := containers(m.WaitReady(names...))
	db := filepath.Join(m.Disk, "state/islet.db")
	found := func() bool {
		out, _ := m.Try("status")
		return strings.Contains(out, db+".corrupt-")
	}
	if found() {
		t.Fatal("the database is already damaged")
	}
	for _, suffix := range []string{"", "-wal"} {
		f, err := os.OpenFile(db+suffix, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		fi, err := f.Stat()
		if err == nil {
			_, err = f.WriteAt(bytes.Repeat([]byte{0xa5}, int(fi.Size())), 1024)
		}
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	late := 0
	// Only a read finds the damage, such as that of the records of imported archives. The other tables that a running agent reads are small,
	// so they may be in the cache of the connection that writes.
	m.Await("the damage to be found", func() bool {
		late++
		m.Write(fmt.Sprintf("manifests/late%d.yaml", late), manifest(fmt.Sprintf("late%d", late), "", "sleep"))
		m.Try("apply", "-f", m.Disk+"/config.yaml")
		m.Write(fmt.Sprintf("state/images/late%d.tar", late), "this is no archive")
		return found()
	})
	for i := range late {
		m.Remove(fmt.Sprintf("manifests/late%d.yaml", i+1))
	}
	m.Write("more.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: more}\nstringData: {a: b}\n")
	m.Islet("apply", "-f", m.Disk+"/more.yaml")
	m.Await("the ConfigMap to be stored again", func() bool {
		file, _ := os.ReadFile(db)
		wal, _ := os.ReadFile(db + "-wal")
		return bytes.Contains(append(file, wal...), []byte("settings")) // the name is not encrypted
	})
	m.Kill()
	m.StartAgent()
	pods := m.WaitReady(names...)
	if n := changed(before, pods); n != 0 || restarts(pods) != 0 {
		t.Errorf("%d pods were replaced, %d containers restarted", n, restarts(pods))
	}
	if out := m.Islet("objects", "-o", "name"); !strings.Contains(out, "settings") || !strings.Contains(out, "more") {
		t.Errorf("objects of islet apply are lost:\n%s", out)
	}
}
