package ctrd

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestInOtherMounts checks that inOtherMounts returns true for a process with its own mount namespace. It returns false for a process in
// the mount namespace of the test.
func TestInOtherMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for _, ownMounts := range []bool{false, true} {
		cmd := exec.Command("cat") // runs until its input ends
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = (&syscall.SysProcAttr{})
		if ownMounts {
			cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if got := inOtherMounts(cmd.Process.Pid); got != ownMounts {
			t.Errorf("own mount namespace: %v, got %v", ownMounts, got)
		}
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	if inOtherMounts(0) || inOtherMounts(-1) {
		t.Error("an unknown process is reported to be in another mount namespace")
	}
}

// TestIsOtherVersion checks that isOtherVersion compares the names of programs, also of a program that was removed since its start.
func TestIsOtherVersion(t *testing.T) {
	cat, err := exec.LookPath("cat")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(cat)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "islet-shim-0123")
	if err := os.WriteFile(path, program, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path) // runs until its input ends
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	for _, state := range []string{"existing", "removed"} {
		if isOtherVersion(pid, path) || isOtherVersion(pid, "/elsewhere/islet-shim-0123") {
			t.Errorf("%s: the same program is another version", state)
		}
		if !isOtherVersion(pid, filepath.Join(filepath.Dir(path), "islet-shim-4567")) {
			t.Errorf("%s: another program is the same version", state)
		}
		os.Remove(path)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if isOtherVersion(0, path) || isOtherVersion(pid, path) {
		t.Error("an unknown process is another version")
	}
}

// TestJoinApart checks that no new sandbox is assigned to a shim that takes no new pods. A sandbox that already uses this shim stays there.
func TestJoinApart(t *testing.T) {
	s := newShims(&Runtime{c: Config{ShimPods: 4}})
	if name := s.assignSandbox("old", false); name != "1" {
		t.Fatal(name)
	}
	s.groups["1"].noNewPods = true
	for sandbox, want := range map[string]string{"new": "2", "newer": "2", "old": "1"} {
		if name := s.assignSandbox(sandbox, false); name != want {
			t.Errorf("%s is in shim %s, want %s", sandbox, name, want)
		}
	}
}
