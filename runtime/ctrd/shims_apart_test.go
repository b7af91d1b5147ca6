package ctrd

import (
	"os"
	"os/exec"
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

// TestJoinApart checks that no new sandbox is assigned to a shim in another mount namespace. A sandbox that already uses this shim stays
// there.
func TestJoinApart(t *testing.T) {
	s := newShims(&Runtime{c: Config{ShimPods: 4}})
	if name := s.assignSandbox("old", false); name != "1" {
		t.Fatal(name)
	}
	s.groups["1"].otherMounts = true
	for sandbox, want := range map[string]string{"new": "2", "newer": "2", "old": "1"} {
		if name := s.assignSandbox(sandbox, false); name != want {
			t.Errorf("%s is in shim %s, want %s", sandbox, name, want)
		}
	}
}
