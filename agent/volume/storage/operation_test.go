package storage

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	utilexec "k8s.io/utils/exec"

	"github.com/islet-edge/islet/runtime/mounts"
)

// A walk stands in for the change of the group of many files, which takes ten minutes. If it is cancelled, it ends a
// second later, after the current file. The volume must be mounted until then.
type walk struct {
	*testing.T
	calls, running atomic.Int32
	lazy           atomic.Bool // of the last call
}

func (w *walk) setGroup(ctx context.Context, dir string, _ int, lazy bool) error {
	w.calls.Add(1)
	w.lazy.Store(lazy)
	if w.running.Add(1) > 1 {
		w.Error("two pods change the group of the files at the same time")
	}
	defer w.running.Add(-1)
	if lazy {
		return nil
	}
	select {
	case <-time.After(10 * time.Minute):
		return nil
	case <-ctx.Done():
		time.Sleep(time.Second) // in the bubble
		if m, err := mounts.FindTopmost(dir); err != nil || m == nil {
			w.Errorf("unmounted while the group of its files is changed: %v", err)
		}
		return ctx.Err()
	}
}

// newWalkMounter returns a Mounter with a claim "dir" on a directory, and the change of the group of its files. end ends the agent.
func newWalkMounter(t *testing.T, root, disk string) (k *Mounter, w *walk, end func()) {
	t.Helper()
	s, o := openStore(t, root), &objects{}
	requireNoError(t, os.Chown(disk, -1, 4321)) // otherwise the group stays while another pod uses the volume
	o.bound("dir", v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: disk}})
	ctx, stop := context.WithCancel(t.Context())
	k, err := New(ctx, Config{Root: root, Ledger: s, Objects: o, Claim: ephemeral})
	requireNoError(t, err)
	w = &walk{T: t}
	k.setGroup = w.setGroup
	return k, w, func() { stop(); time.Sleep(time.Minute); s.Close() }
}

// groupPod returns a pod with an fsGroup and the claim "dir".
func groupPod(name string) *v1.Pod {
	p, gid := podWith(name, "dir"), int64(4321)
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &gid}
	return p
}

// TestLongGroupChange checks that the change of the group of many files continues after its caller has stopped waiting. Later calls wait
// for it, and it does not start again.
func TestLongGroupChange(t *testing.T) {
	root, disk := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		k, w, end := newWalkMounter(t, root, disk)
		defer end()
		p := groupPod("p")
		failed := 0
		for began := time.Now(); ; failed++ {
			since := time.Now()
			_, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
			if err == nil {
				if time.Since(began) != 10*time.Minute {
					t.Errorf("mounted after %v", time.Since(began))
				}
				break
			}
			if time.Since(since) != mountTime ||
				!strings.Contains(err.Error(), "timed out waiting for the condition: the group of the volume's files is being changed to 4321") {
				t.Fatalf("after %v: %v", time.Since(since), err)
			}
			if slow := k.SlowCalls(p.UID); len(slow) != 1 || !strings.Contains(slow[0], "the group of the volume's files is being changed") {
				t.Errorf("%q", slow)
			}
		}
		if failed != 4 || w.calls.Load() != 1 {
			t.Errorf("mounted after %d timeouts and %d changes of the group", failed, w.calls.Load())
		}
		if slow := k.SlowCalls(p.UID); len(slow) != 0 {
			t.Errorf("%q", slow)
		}
		requireNoError(t, k.TearDown(t.Context(), p.UID))
	})
}

// TestExpansionDuringGroupChange checks that the end of a change of the group does not undo the record of an expansion.
func TestExpansionDuringGroupChange(t *testing.T) {
	root, disk := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		k, w, end := newWalkMounter(t, root, disk)
		defer end()
		p := groupPod("p")
		if _, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], ""); err == nil || w.running.Load() != 1 {
			t.Fatal(err)
		}
		requireNoError(t, k.recordSize(t.Context(), k.InUse()[0], 5<<30))
		time.Sleep(10 * time.Minute) // in the bubble
		rows, err := loadLedger(t.Context(), k.cfg.Ledger, k.cfg.Log)
		requireNoError(t, err)
		for key, r := range rows {
			if r.Size != 5<<30 || r.GroupPending {
				t.Errorf("%v: size %d, pending: %v", key, r.Size, r.GroupPending)
			}
		}
		requireNoError(t, k.TearDown(t.Context(), p.UID))
	})
}

// TestEndOfLongGroupChange checks that the teardown of the pod and the end of the agent end the change of the group.
func TestEndOfLongGroupChange(t *testing.T) {
	root, disk := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		k, w, end := newWalkMounter(t, root, disk)
		p := groupPod("p")
		for range 2 {
			ctx, stop := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, stop) // the pod is deleted
			if _, err := k.SetUp(ctx, p, &p.Spec.Volumes[0], ""); !errors.Is(err, context.Canceled) || w.running.Load() != 1 {
				t.Errorf("%v, %d changes of the group are running", err, w.running.Load())
			}
			began := time.Now()
			if err := k.TearDown(t.Context(), p.UID); err != nil || time.Since(began) > time.Second || k.HasPod(p.UID) {
				t.Errorf("torn down after %v: %v", time.Since(began), err)
			}
			synctest.Wait()
			if w.running.Load() != 0 || len(mustList(t, root)) != 0 {
				t.Errorf("%d changes of the group are running, mounted: %q", w.running.Load(), mustList(t, root))
			}
		}
		if _, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], ""); err == nil || w.running.Load() != 1 {
			t.Error(err)
		}
		end()
		if w.running.Load() != 0 || len(k.Pods()) != 1 {
			t.Errorf("after the end of the agent, %d changes of the group are running, pods: %q", w.running.Load(), k.Pods())
		}
		requireNoError(t, mounts.DetachBelow(root))
	})
}

func mustList(t *testing.T, root string) []string {
	t.Helper()
	below, err := mounts.ListBelow(root)
	requireNoError(t, err)
	return below
}

// TestLongGroupChangeDelaysNoOther checks that other pods with the same volume start and end while the group of its files is changed for
// one pod. A pod that also has an fsGroup waits for the change.
func TestLongGroupChangeDelaysNoOther(t *testing.T) {
	root, disk := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		k, w, end := newWalkMounter(t, root, disk)
		defer end()
		p, plain, second, third := groupPod("p"), podWith("plain", "dir"), groupPod("second"), groupPod("third")
		up := func(p *v1.Pod) error {
			_, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
			return err
		}
		began := time.Now()
		requireNoError(t, up(plain))
		if err := up(second); err != nil || !w.lazy.Load() { // the volume has the group already
			t.Error(err)
		}
		requireNoError(t, k.TearDown(t.Context(), second.UID))
		requireNoError(t, k.TearDown(t.Context(), plain.UID))
		if time.Since(began) > 0 {
			t.Errorf("it took %v", time.Since(began))
		}
		if err := up(p); err == nil {
			t.Error("no error during the change of the group")
		}
		began = time.Now()
		requireNoError(t, up(plain))
		requireNoError(t, k.TearDown(t.Context(), plain.UID))
		if time.Since(began) > 0 {
			t.Errorf("another pod with the volume waited for %v", time.Since(began))
		}
		calls := w.calls.Load()
		if err := up(second); err == nil || w.calls.Load() != calls {
			t.Errorf("%v, %d changes", err, w.calls.Load()-calls)
		}
		began = time.Now()
		requireNoError(t, k.TearDown(t.Context(), second.UID))
		if time.Since(began) > 0 || w.running.Load() != 1 {
			t.Errorf("the end of a waiting pod took %v, and %d changes are running", time.Since(began), w.running.Load())
		}
		for err := up(third); err != nil; err = up(third) { // waits for the change
			if w.running.Load() != 1 {
				t.Fatal(err)
			}
		}
		if !w.lazy.Load() || w.calls.Load() != calls+1 {
			t.Errorf("lazy: %v, %d changes", w.lazy.Load(), w.calls.Load()-calls)
		}
		requireNoError(t, up(p))
		requireNoError(t, errors.Join(k.TearDown(t.Context(), p.UID), k.TearDown(t.Context(), third.UID)))
		if len(k.InUse()) != 0 || len(mustList(t, root)) != 0 {
			t.Errorf("in use: %q, mounted: %q", k.InUse(), mustList(t, root))
		}
	})
}

// TestInterruptedGroupChange checks that a change of the group which was interrupted, by the end of the agent or of the pod, is made later
// although another pod with the volume has started meanwhile. After its end, the files are not changed for further pods.
func TestInterruptedGroupChange(t *testing.T) {
	root, disk := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		p, plain, second := groupPod("p"), podWith("plain", "dir"), groupPod("second")
		k, w, end := newWalkMounter(t, root, disk)
		defer func() { end() }()
		restart := func() {
			end()
			k, w, end = newWalkMounter(t, root, disk)
		}
		up := func(p *v1.Pod, changesAll bool) {
			t.Helper()
			for {
				_, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
				if err == nil {
					break
				}
				if w.running.Load() != 1 {
					t.Fatal(err)
				}
			}
			if w.lazy.Load() == changesAll {
				t.Errorf("%s: the group of all files is changed: %v", p.Name, !changesAll)
			}
		}
		begin := func() {
			t.Helper()
			if _, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], ""); err == nil || w.running.Load() != 1 {
				t.Fatal(err)
			}
			_, err := k.SetUp(t.Context(), plain, &plain.Spec.Volumes[0], "")
			requireNoError(t, err)
		}
		begin()
		restart()
		begin()
		restart()
		up(plain, true) // w has had no call
		up(p, true)
		up(second, false)
		requireNoError(t, k.TearDown(t.Context(), second.UID))
		restart()
		up(plain, true)
		up(p, false)
		requireNoError(t, errors.Join(k.TearDown(t.Context(), p.UID), k.TearDown(t.Context(), plain.UID)))

		begin()
		if _, err := k.SetUp(t.Context(), second, &second.Spec.Volumes[0], ""); err == nil { // waits for the change
			t.Error("no error during the change of the group")
		}
		requireNoError(t, k.TearDown(t.Context(), p.UID))
		up(second, true)
		for _, pod := range []*v1.Pod{plain, second} {
			requireNoError(t, k.TearDown(t.Context(), pod.UID))
		}
		if len(k.InUse()) != 0 || len(mustList(t, root)) != 0 {
			t.Errorf("in use: %q, mounted: %q", k.InUse(), mustList(t, root))
		}
	})
}

// TestFailedGroupChange checks that a change of the group which has failed is made again although another pod with the volume has started
// meanwhile.
func TestFailedGroupChange(t *testing.T) {
	root, disk := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		k, w, end := newWalkMounter(t, root, disk)
		defer end()
		p, plain := groupPod("p"), podWith("plain", "dir")
		k.setGroup = func(context.Context, string, int, bool) error {
			_, err := k.SetUp(t.Context(), plain, &plain.Spec.Volumes[0], "")
			return errors.Join(err, errors.New("the disk fails"))
		}
		if _, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], ""); err == nil || !strings.Contains(err.Error(), "the disk fails") {
			t.Error(err)
		}
		k.setGroup = w.setGroup
		if _, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], ""); err == nil || w.lazy.Load() {
			t.Errorf("%v, lazy: %v", err, w.lazy.Load())
		}
		requireNoError(t, errors.Join(k.TearDown(t.Context(), p.UID), k.TearDown(t.Context(), plain.UID)))
	})
}

// A slowProgram is a script in place of a program. It waits for the test.
type slowProgram struct {
	*testing.T
	dir string
}

// slow installs a slowProgram in place of a program. When the test lets it continue, it runs the script.
func slow(t *testing.T, name, script string) slowProgram {
	t.Helper()
	p := slowProgram{t, t.TempDir()}
	for _, pipe := range []string{"started", "continue"} {
		requireNoError(t, unix.Mkfifo(filepath.Join(p.dir, pipe), 0o600))
	}
	stand(t, name, "cd "+p.dir+"\necho run >>calls\necho >started\nread line <continue\n"+script)
	return p
}

// awaitStart returns when the program runs.
func (p slowProgram) awaitStart() {
	p.Helper()
	_, err := os.ReadFile(filepath.Join(p.dir, "started"))
	requireNoError(p.T, err)
}

// resume lets the program continue. It does not return if the program was killed.
func (p slowProgram) resume() {
	p.Helper()
	requireNoError(p.T, os.WriteFile(filepath.Join(p.dir, "continue"), []byte("\n"), 0))
}

func (p slowProgram) calls() int {
	p.Helper()
	b, err := os.ReadFile(filepath.Join(p.dir, "calls"))
	requireNoError(p.T, err)
	return strings.Count(string(b), "run")
}

// newDiskMounter returns a Mounter with a claim "disk" on an empty disk, a pod with it, and the events of the pod.
func newDiskMounter(t *testing.T) (*Mounter, *v1.Pod, <-chan string) {
	t.Helper()
	o, s, events := &objects{}, openStore(t, t.TempDir()), make(chan string, 10)
	t.Cleanup(func() { s.Close() })
	o.bound("disk", v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: loop(t, 16<<10)}})
	k, err := New(t.Context(), Config{Root: t.TempDir(), Ledger: s, Objects: o, Claim: ephemeral, Event: noting(events)})
	requireNoError(t, err)
	return k, podWith("p", "disk"), events
}

// abandon sets up the pod's volume, and stops waiting when the program has started.
func abandon(t *testing.T, k *Mounter, p *v1.Pod, program slowProgram) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := k.SetUp(ctx, p, &p.Spec.Volumes[0], "")
		ended <- err
	}()
	program.awaitStart()
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// TestLongFormat checks that a disk is formatted once although its formatting takes longer than the wait of a caller. The teardown of the
// pod ends the formatting.
func TestLongFormat(t *testing.T) {
	mkfs := slow(t, "mkfs.ext4", `exec $real "$@"`)
	k, p, _ := newDiskMounter(t)
	abandon(t, k, p, mkfs)
	requireNoError(t, k.TearDown(t.Context(), p.UID))
	if len(k.InUse()) != 0 {
		t.Errorf("in use: %q", k.InUse())
	}
	abandon(t, k, p, mkfs)
	mkfs.resume()
	path, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
	requireNoError(t, err)
	if m, err := mounts.FindTopmost(path); err != nil || m == nil || m.FSType != "ext4" || mkfs.calls() != 2 {
		t.Errorf("%+v, %v, formatted %d times", m, err, mkfs.calls())
	}
	requireNoError(t, k.TearDown(t.Context(), p.UID))
}

// TestLongCheck checks that the result of a file system's check is not lost if the check takes longer than the wait of a
// caller. The teardown of the pod does not end the check.
func TestLongCheck(t *testing.T) {
	k, p, events := newDiskMounter(t)
	_, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
	requireNoError(t, errors.Join(err, k.TearDown(t.Context(), p.UID)))
	fsck := slow(t, "fsck", "echo damaged; exit 4")
	abandon(t, k, p, fsck)
	fsck.resume()
	if e := <-events; !strings.HasPrefix(e, "Warning FailedMount: MountVolume.MountDevice failed") || !strings.Contains(e, "damaged") {
		t.Error(e)
	}
	abandon(t, k, p, fsck)
	ended, stop := context.WithCancel(t.Context())
	stop()
	if err := k.TearDown(ended, p.UID); !errors.Is(err, errBusy) {
		t.Error(err)
	}
	fsck.resume()
	requireNoError(t, k.TearDown(t.Context(), p.UID))
	stand(t, "fsck", "exit 4")
	var exit utilexec.ExitError
	over := context.WithValue(ended, operationKey{}, &operation{ctx: ended})
	if err := (contextExec{utilexec.New(), over}).Command("fsck", "-a").Run(); !errors.As(err, &exit) || exit.ExitStatus() != 4 {
		t.Errorf("after the end of the operation: %v", err)
	}
	if len(k.InUse()) != 0 || fsck.calls() != 2 || len(mustList(t, k.root)) != 0 {
		t.Errorf("in use: %q, mounted: %q, %d checks", k.InUse(), mustList(t, k.root), fsck.calls())
	}
}

// TestEndOfLongStep checks that the error does not name a long step that has ended, if a later program hangs.
func TestEndOfLongStep(t *testing.T) {
	k, p, _ := newDiskMounter(t)
	_, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
	requireNoError(t, errors.Join(err, k.TearDown(t.Context(), p.UID)))
	fsck, mount := slow(t, "fsck", "exit 0"), slow(t, "mount", `exec $real "$@"`)
	ended := make(chan error, 1)
	go func() {
		_, err := k.SetUp(t.Context(), p, &p.Spec.Volumes[0], "")
		ended <- err
	}()
	describe := func() string { return k.describeStep(volumeUse{k.InUse()[0], p.UID}, errBusy).Error() }
	fsck.awaitStart()
	if got := describe(); !strings.HasPrefix(got, "the file system of the disk is being checked") {
		t.Error(got)
	}
	fsck.resume()
	mount.awaitStart()
	if got := describe(); got != errBusy.Error() {
		t.Error(got)
	}
	mount.resume()
	requireNoError(t, errors.Join(<-ended, k.TearDown(t.Context(), p.UID)))
}

// TestISCSIFormatDelaysNoOther checks that the formatting of a disk does not lock its target.
func TestISCSIFormatDelaysNoOther(t *testing.T) {
	mkfs := slow(t, "mkfs.ext4", `exec $real "$@"`)
	d := newISCSI(t.TempDir(), &objects{})
	d.byPath, d.admin = t.TempDir(), func(context.Context, ...string) (string, error) { return "", nil }
	v := Volume{ID: "x", Name: "pv", Source: v1.PersistentVolumeSource{
		ISCSI: &v1.ISCSIPersistentVolumeSource{TargetPortal: "10.0.0.1", IQN: "iqn.2026-01.example:disk"},
	}}
	requireNoError(t, os.Symlink(loop(t, 16<<10), d.byPath+"/ip-10.0.0.1:3260-iscsi-iqn.2026-01.example:disk-lun-0"))
	ended := make(chan error, 1)
	go func() { ended <- d.Stage(t.Context(), v, d.StagePath(v), Use{Pod: podWith("p")}) }()
	mkfs.awaitStart()
	ctx, stop := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Second, stop)
	leave, err := d.lockTarget(ctx, v.Source.ISCSI.IQN)
	requireNoError(t, err)
	leave()
	mkfs.resume()
	requireNoError(t, errors.Join(<-ended, d.Unstage(t.Context(), v, d.StagePath(v))))
}

// TestGroupIsWrittenOnce checks that files which already have the group and the mode are not written again. The bits
// setuid and setgid stay.
func TestGroupIsWrittenOnce(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "a", "file"), filepath.Join(dir, "a", "link")
	requireNoError(t, os.Mkdir(filepath.Dir(file), 0o700))
	requireNoError(t, os.WriteFile(file, nil, 0o600))
	requireNoError(t, os.Chmod(file, 0o755|os.ModeSetuid|os.ModeSetgid))
	requireNoError(t, os.Symlink("file", link))
	all := []string{dir, filepath.Dir(file), file, link}
	stat := func() (out []unix.Stat_t) {
		for _, path := range all {
			var st unix.Stat_t
			requireNoError(t, unix.Lstat(path, &st))
			st.Atim = unix.Timespec{}
			out = append(out, st)
		}
		return out
	}
	requireNoError(t, SetGroup(t.Context(), dir, 4321, false))
	first := stat()
	for i, mode := range []uint32{unix.S_IFDIR | 0o2770, unix.S_IFDIR | 0o2770, unix.S_IFREG | 0o6775, unix.S_IFLNK | 0o777} {
		if first[i].Gid != 4321 || first[i].Mode|0o005 != mode|0o005 {
			t.Errorf("%s: group %d, mode %o", all[i], first[i].Gid, first[i].Mode)
		}
	}
	requireNoError(t, SetGroup(t.Context(), dir, 4321, false))
	for i, st := range stat() {
		if st != first[i] {
			t.Errorf("%s was written again", all[i])
		}
	}
	requireNoError(t, os.Chmod(file, 0o600))
	requireNoError(t, os.Lchown(link, 0, 0))
	requireNoError(t, SetGroup(t.Context(), dir, 4321, false))
	if now := stat(); now[2].Mode&0o777 != 0o660 || now[3].Gid != 4321 {
		t.Errorf("mode %o, group %d", now[2].Mode, now[3].Gid)
	}
}

// TestHangingISCSI checks that an iscsiadm which never ends delays the disks of its target for a limited time.
func TestHangingISCSI(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		for _, fails := range []string{"--discover", "--login"} {
			d := newISCSI(root, &objects{})
			d.admin = func(ctx context.Context, args ...string) (string, error) {
				switch args[len(args)-1] {
				case fails:
					return "", errors.New("refused")
				case "delete":
					<-ctx.Done()
					return "", ctx.Err()
				}
				return "", nil
			}
			v := Volume{ID: "x", Name: "pv", Source: v1.PersistentVolumeSource{
				ISCSI: &v1.ISCSIPersistentVolumeSource{TargetPortal: "10.0.0.1", IQN: "iqn.2026-01.example:disk"},
			}}
			began := time.Now()
			if err := d.Stage(t.Context(), v, d.StagePath(v), Use{Pod: podWith("p")}); err == nil || time.Since(began) > mountTime {
				t.Errorf("%s: after %v: %v", fails, time.Since(began), err)
			}
			_, err := d.lockTarget(t.Context(), v.Source.ISCSI.IQN)
			requireNoError(t, err)
		}
	})
}
