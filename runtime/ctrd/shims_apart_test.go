package ctrd

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// TestInOtherMounts: a process in a mount namespace of its own is told from one that shares this
// process's.
func TestInOtherMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for _, apart := range []bool{false, true} {
		cmd := exec.Command("cat") // until its input ends
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = (&syscall.SysProcAttr{})
		if apart {
			cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if got := inOtherMounts(cmd.Process.Pid); got != apart {
			t.Errorf("in a mount namespace of its own: %v, found %v", apart, got)
		}
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	if inOtherMounts(0) || inOtherMounts(-1) {
		t.Error("a process that is not known is in another mount namespace")
	}
}

// TestJoinApart: a sandbox joins no shim with another mount namespace; one that is in it stays.
func TestJoinApart(t *testing.T) {
	s := newShims(&Runtime{c: Config{ShimPods: 4}})
	if name := s.join("old", false); name != "1" {
		t.Fatal(name)
	}
	s.groups["1"].apart = true
	for sandbox, want := range map[string]string{"new": "2", "newer": "2", "old": "1"} {
		if name := s.join(sandbox, false); name != want {
			t.Errorf("%s is in shim %s, want %s", sandbox, name, want)
		}
	}
}
