package quota_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/quota"
	"github.com/islet-edge/islet/runtime/mounts/mountstest"
)

// TestMain runs the tests in a separate mount namespace.
func TestMain(m *testing.M) {
	if os.Getuid() != 0 {
		os.Exit(m.Run())
	}
	os.Exit(mountstest.Main(m.Run))
}

// mustVariable is the name of an environment variable. If the variable is set, the tests fail on a kernel without quotas.
const mustVariable = "ISLET_QUOTA_MUST"

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// mountDisk mounts a new file system of the given type, with or without project quotas.
func mountDisk(t *testing.T, kind string, quotas bool) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	image, at := filepath.Join(dir, "image"), filepath.Join(dir, "disk")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 320<<20), os.Mkdir(at, 0o755)); err != nil {
		t.Fatal(err)
	}
	make := map[string][]string{"ext4": {"mkfs.ext4", "-q", "-F"}, "xfs": {"mkfs.xfs", "-q"}}[kind]
	if kind == "ext4" && quotas {
		make = append(make, "-O", "quota,project", "-E", "quotatype=prjquota")
	}
	if _, err := exec.LookPath(make[0]); err != nil {
		t.Skip(err)
	}
	run(t, make[0], append(make[1:], image)...)
	options := "loop"
	if quotas {
		options += ",prjquota"
	}
	mount := exec.Command("mount", "-o", options, "-t", kind, image, at)
	if out, err := mount.CombinedOutput(); err != nil && quotas && os.Getenv(mustVariable) == "" {
		t.Skipf("this kernel has no quotas for %s; make test-vm runs this test where there are: %s", kind, out)
	} else if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() { unix.Unmount(at, unix.MNT_DETACH) })
	return at
}

// fill writes to a file until the limit, and returns the number of bytes. It writes without CAP_SYS_RESOURCE, like a container, because
// the kernel does not enforce quotas for processes with this capability.
func fill(t *testing.T, path string, most int) (n int) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		if err := dropPrivilege(); err != nil {
			done <- err
			return
		}
		var err error
		for n < most && err == nil {
			var wrote int
			wrote, err = f.Write(bytes.Repeat([]byte("x"), 64<<10))
			n += wrote
		}
		if errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.ENOSPC) {
			err = nil
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil && !errors.Is(err, unix.EDQUOT) && !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	return n
}

// dropPrivilege drops CAP_SYS_RESOURCE from the thread.
func dropPrivilege() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	data[0].Effective &^= 1 << unix.CAP_SYS_RESOURCE
	return unix.Capset(&header, &data[0])
}

func TestLimit(t *testing.T) {
	for _, kind := range []string{"ext4", "xfs"} {
		t.Run(kind, func(t *testing.T) {
			at := mountDisk(t, kind, true)
			if !quota.Supported(at) {
				t.Fatal("no project quotas")
			}
			var p quota.Projects
			a, b := filepath.Join(at, "a"), filepath.Join(at, "b")
			for dir, size := range map[string]int64{a: 4 << 20, b: 8 << 20} {
				if err := os.Mkdir(dir, 0o777); err != nil {
					t.Fatal(err)
				}
				for range 2 { // the second call changes nothing
					if kept, err := p.Limit(dir, size); err != nil || !kept {
						t.Fatal(dir, kept, err)
					}
				}
			}
			if err := os.MkdirAll(filepath.Join(a, "deep/down"), 0o755); err != nil {
				t.Fatal(err)
			}
			if n := fill(t, filepath.Join(a, "deep/down/file"), 32<<20); n < 3<<20 || n > 4<<20 {
				t.Errorf("wrote %d bytes of 4 MiB", n)
			}
			if n, known := p.Usage(a); !known || n < 3<<20 || n > 4<<20 {
				t.Error("used:", n, known)
			}
			if n := fill(t, filepath.Join(b, "file"), 32<<20); n < 7<<20 || n > 8<<20 {
				t.Errorf("the other one has %d bytes of 8 MiB", n)
			}
			// The limit can be increased, also by another process of the agent.
			p = quota.Projects{}
			if kept, err := p.Limit(a, 16<<20); err != nil || !kept {
				t.Fatal(kept, err)
			}
			if n := fill(t, filepath.Join(a, "more"), 32<<20); n < 10<<20 || n > 13<<20 {
				t.Errorf("wrote %d bytes more", n)
			}
			if err := p.RemoveLimit(a); err != nil {
				t.Error(err)
			}
			if n, known := p.Usage(a); known {
				t.Error("still limited:", n)
			}
			if n := fill(t, filepath.Join(a, "again"), 24<<20); n < 24<<20 {
				t.Errorf("wrote only %d bytes without a limit", n)
			}
		})
	}
}

// TestNotEmpty checks that a directory with files gets no limit, because the kernel would not count these files.
func TestNotEmpty(t *testing.T) {
	at := mountDisk(t, "ext4", true)
	dir := filepath.Join(at, "a")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "old"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	var p quota.Projects
	if kept, err := p.Limit(dir, 1<<20); kept || err != nil {
		t.Error(kept, err)
	}
	if err := p.RemoveLimit(dir); err != nil {
		t.Error(err)
	}
}

// TestUnsupported checks that no call fails on a disk without project quotas. No limit is enforced there.
func TestUnsupported(t *testing.T) {
	dirs := []string{t.TempDir()}
	if os.Geteuid() == 0 {
		dirs = append(dirs, mountDisk(t, "ext4", false))
	}
	for _, at := range dirs {
		var p quota.Projects
		dir := filepath.Join(at, "a")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		kept, err := p.Limit(dir, 1<<20)
		if _, known := p.Usage(dir); kept || err != nil || known || p.RemoveLimit(dir) != nil || quota.Supported(dir) {
			t.Error(at, kept, err, known)
		}
	}
}

// TestLinks checks that a symlink is not followed.
func TestLinks(t *testing.T) {
	at := mountDisk(t, "ext4", true)
	target, link := filepath.Join(at, "target"), filepath.Join(at, "link")
	if err := errors.Join(os.Mkdir(target, 0o755), os.Symlink(target, link)); err != nil {
		t.Fatal(err)
	}
	var p quota.Projects
	if kept, err := p.Limit(link, 1<<20); kept || err == nil {
		t.Error(kept, err)
	}
	if _, known := p.Usage(target); known {
		t.Error("the target has a quota")
	}
}
