package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

const diary = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: diary}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Mi}}
---
`

// A board is a machine that is backed up and replaced.
type board struct {
	*testing.T
	*machine.Machine
	key, to, file string // of the office
	old           string // the disk of the replaced board
}

func newBoard(t *testing.T) *board {
	t.Helper()
	b := &board{T: t, Machine: machine.New(t, "edge")}
	office := t.TempDir()
	b.key, b.file = office+"/key", office+"/edge.backup"
	b.InstallImage()
	b.Boot()
	b.to = strings.TrimSpace(b.Islet("backup", "--new-key="+b.key))
	return b
}

func (b *board) backup(more ...string) string {
	b.Helper()
	return b.Islet(append([]string{"backup", b.file, "--to=" + b.to, "--include=" + b.Disk + "/manifests"}, more...)...)
}

// restore runs islet restore with the flags of the agent.
func (b *board) restore(more ...string) (string, int) {
	return b.Try(append(append([]string{"restore", b.file, "--key=" + b.key, "--include=" + b.Disk}, more...), flags(b.Machine, "/run/islet")...)...)
}

// replace takes the disk away, and boots the machine with an empty one.
func (b *board) replace() {
	b.Helper()
	b.PowerOff()
	b.old = b.Disk + "-old"
	if err := errors.Join(os.Rename(b.Disk, b.old), os.Mkdir(b.Disk, 0o700)); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(b.old) })
	b.InstallImage()
	b.Boot()
}

// killAt starts a command, and kills it when a file exists. It returns false if the command ended before.
func (b *board) killAt(file string, args ...string) bool {
	b.Helper()
	cmd := b.Command(b.Binary(), args...)
	p, err := machine.StartProcess(cmd)
	if err != nil {
		b.Fatal(err)
	}
	for {
		select {
		case <-p.Ended:
			return false
		default:
		}
		if _, err := os.Lstat(file); err == nil {
			if err := syscall.Kill(p.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				b.Fatal(err)
			}
			<-p.Ended
			return true
		}
	}
}

// state returns the names of the files in the state directory.
func (b *board) state() (names []string) {
	entries, err := os.ReadDir(b.Disk + "/state")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		b.Error(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestBackup backs up a node with static pods, applied objects and a claim, while the agent runs and while it does not. A backup that is
// killed leaves the earlier one. A new board gets the node, also after the restore was killed. A backup that is damaged, sealed to another
// key or of another node changes nothing. Pods, objects and the public key of the node are as before.
func TestBackup(t *testing.T) {
	t.Parallel()
	b := newBoard(t)
	b.Write("manifests/static.yaml", manifest("static", "", "sleep"))
	b.StartAgent()
	b.Write("wifi.yaml", fmt.Sprintf(wifi, "horse-battery-1")+"---\n"+fmt.Sprintf(settings, "hello")+"---\n"+diary+
		manifest("writer", "    volumeMounts:\n    - {name: d, mountPath: /diary}\n  volumes:\n"+
			"  - {name: d, persistentVolumeClaim: {claimName: diary}}\n", "sleep"))
	b.Islet("apply", "-f", b.Disk+"/wifi.yaml")
	b.WaitReady("static-edge", "writer")
	recipient := strings.TrimSpace(b.Islet("key", "recipient"))
	page := filepath.Join(b.Disk, "state/claims/default/diary/page")
	if err := os.WriteFile(page, []byte("dear diary"), 0o644); err != nil {
		t.Fatal(err)
	}

	out := b.backup()
	if fi, err := os.Stat(b.file); err != nil || fi.Mode().Perm() != 0o600 || !strings.Contains(out, "node edge") {
		t.Errorf("the backup: %v, %v\n%s", fi, err, out)
	}
	if data, err := os.ReadFile(b.file); err != nil || strings.Contains(string(data), "static") {
		t.Errorf("the backup is not sealed: %v", err)
	}
	if out := b.Islet("backup", "--verify", b.file, "--key="+b.key); !strings.Contains(out, recipient) {
		t.Errorf("the backup has another key than %s:\n%s", recipient, out)
	}
	for range 3 {
		b.killAt(filepath.Join(filepath.Dir(b.file), ".edge.backup.new"), append([]string{"backup", b.file, "--to=" + b.to},
			flags(b.Machine, "/run/islet")...)...)
		b.Islet("backup", "--verify", b.file, "--key="+b.key)
	}
	b.Stop()
	b.backup(flags(b.Machine, "/run/islet")...)
	b.Islet("backup", "--verify", b.file, "--key="+b.key)

	b.replace()
	b.refuse()
	b.interrupt()
	for _, part := range []string{"claims"} { // the data of claims is copied by hand
		if out, err := exec.Command("cp", "-a", filepath.Join(b.old, "state", part), b.Disk+"/state").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	b.StartAgent()
	b.WaitReady("static-edge", "writer")
	if now := strings.TrimSpace(b.Islet("key", "recipient")); now != recipient {
		t.Errorf("the public key is %s instead of %s", now, recipient)
	}
	if out := b.Islet("objects"); !strings.Contains(out, "secret/wifi") || !strings.Contains(out, "configmap/settings") {
		t.Errorf("objects: %s", out)
	}
	if got := file(b.Machine, "writer", "/diary/page"); got != "dear diary" {
		t.Errorf("the data of the claim: %q", got)
	}
	for _, name := range b.state() {
		if strings.HasPrefix(name, ".restore") || name == "restore.json" || strings.HasPrefix(name, ".backup") {
			t.Errorf("%s is left", name)
		}
	}
	b.Stop()
	for _, c := range []struct {
		args []string
		says string
	}{{nil, "islet cleanup"}, {nil, "--set-aside"}, {[]string{"--set-aside"}, "edge is restored"}} {
		if c.says == "--set-aside" {
			b.checkDryRun()
		}
		if out, _ := b.restore(c.args...); !strings.Contains(out, c.says) {
			t.Errorf("a restore over a node: %q is not in %s", c.says, out)
		}
		b.Islet(append([]string{"cleanup"}, flags(b.Machine, "/run/islet")...)...)
	}
	if kept, err := filepath.Glob(b.Disk + "/state/.islet.db.before-restore-*"); err != nil || len(kept) != 1 {
		t.Errorf("the database before is not kept: %q, %v", kept, err)
	}
}

// checkDryRun checks that another node gets none of the files that this node has made in the state directory, except those that belong to
// the board. To make a new file, decide first which of the two it is.
func (b *board) checkDryRun() {
	b.Helper()
	ofBoard := map[string]bool{
		"cni": true, "runtime": true, // records of sandboxes, which islet cleanup removes
		"container-logs": true, // links to logs of containers, which the agent removes
		"pod-logs":       true, // logs of containers, which the agent removes
		"interrupted":    true, // records of containers by ID, which no container of another node has
		"containerd":     true, // see TestStaysOnBoard in edge/backup
		"images":         true, // archives that somebody has brought
		"lock":           true,
		"k3s":            true, // the files in this directory are named by their paths
		"update":         true, // other versions of islet; a node's own record in this directory is named by its path
	}
	out, code := b.restore("--set-aside", "--dry-run")
	if code != 0 {
		b.Errorf("a dry run over a node: exit code %d\n%s", code, out)
	}
	for _, name := range b.state() {
		if strings.Contains(out, b.Disk+"/state/"+name+"\n") == ofBoard[name] {
			b.Errorf("%s would belong to the board: %v\n%s", name, !ofBoard[name], out)
		}
	}
}

// refuse tries restores that must change nothing.
func (b *board) refuse() {
	b.Helper()
	before := fmt.Sprint(b.state())
	whole, err := os.ReadFile(b.file)
	if err != nil {
		b.Fatal(err)
	}
	put := func(data []byte) {
		if err := os.WriteFile(b.file, data, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	other := b.key + "2"
	b.Islet("backup", "--new-key="+other)
	damaged := append([]byte{}, whole...)
	damaged[len(damaged)/2] ^= 1
	for name, c := range map[string]struct {
		data []byte
		args []string
	}{
		"half":           {whole[:len(whole)/2], nil},
		"without an end": {whole[:len(whole)-1], nil},
		"a changed byte": {damaged, nil},
		"another key":    {whole, []string{"--key=" + other}},
		"another name":   {whole, []string{"--hostname-override=other"}},
		"a dry run":      {whole, []string{"--dry-run"}},
	} {
		put(c.data)
		if out, code := b.restore(c.args...); (code == 0) != (name == "a dry run") {
			b.Errorf("%s: exit code %d\n%s", name, code, out)
		}
		if after := fmt.Sprint(b.state()); after != before {
			b.Errorf("%s: the state directory has %s instead of %s", name, after, before)
		}
	}
	put(whole)
}

// interrupt kills restores at different moments. If the last one was decided and is not complete, the next start of the agent completes it.
// Otherwise interrupt runs another restore.
func (b *board) interrupt() {
	b.Helper()
	args := append([]string{"restore", b.file, "--key=" + b.key, "--include=" + b.Disk}, flags(b.Machine, "/run/islet")...)
	for _, at := range []string{".restore", ".restore/db", ".restore/plan.json", "restore.json"} {
		b.Logf("killed at %s: %v", at, b.killAt(filepath.Join(b.Disk, "state", at), args...))
	}
	if _, err := os.Lstat(b.Disk + "/state/restore.json"); err == nil {
		b.Log("the agent completes the restore")
		return
	}
	out, code := b.restore()
	if code != 0 && !strings.Contains(out, "--set-aside") { // a killed one may have been complete
		b.Fatalf("after kills: exit code %d\n%s", code, out)
	}
}

// TestBackupOfBundle replaces the board of a node that uses a bundle. The new board has the pods of the bundle, and refuses an older
// bundle. It takes the same bundle again, with its images, and opens the Secret that is sealed for the node.
func TestBackupOfBundle(t *testing.T) {
	t.Parallel()
	bundles := newBundles(t)
	m, office := bundles.m, t.TempDir()
	b := &board{T: t, Machine: m, key: office + "/key", file: office + "/edge.backup"}
	m.StartAgent()
	m.Write("wifi.yaml", fmt.Sprintf(wifi, "horse-battery"))
	m.Islet("bundle", "seal", m.Disk+"/wifi.yaml", "--to", strings.TrimSpace(m.Islet("key", "recipient")), "-o", m.Disk+"/wifi.sealed.yaml")
	secret, err := os.ReadFile(m.Disk + "/wifi.sealed.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pods := map[string]string{"two": reader("two"), "settings": fmt.Sprintf(settings, "hello"), "wifi.sealed": string(secret)}
	four, five := bundles.build(4, "anna.key", pods), bundles.build(5, "anna.key", pods)
	m.Islet("bundle", "apply", "--wait", five)
	b.to = strings.TrimSpace(m.Islet("backup", "--new-key="+b.key))
	m.Islet("backup", b.file, "--to="+b.to)

	m.PowerOff()
	b.old = m.Disk + "-old"
	if err := errors.Join(os.Rename(m.Disk, b.old), os.Mkdir(m.Disk, 0o700)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(b.old) })
	m.Boot()
	if out, code := b.restore(); code != 0 || !strings.Contains(out, "kiosk number 5") {
		t.Fatalf("code %d\n%s", code, out)
	}
	m.StartAgent()
	m.WaitPods("the pod of the bundle", func(now map[string]machine.Pod) bool { _, found := now["two"]; return found })
	bundles.refuse("--older", filepath.Join(b.old, filepath.Base(four)))
	m.Islet("bundle", "apply", "--wait", filepath.Join(b.old, filepath.Base(five)))
	m.WaitReady("two")
	if got := file(m, "two", "/all/password"); got != "horse-battery" {
		t.Errorf("the sealed Secret of the bundle has %q", got)
	}
}
