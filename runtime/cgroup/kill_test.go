package cgroup

import (
	"errors"
	"io/fs"
	"os/exec"
	"strings"
	"testing"
)

// TestKill checks that Kill ends all processes of a cgroup and its descendants, even if they fork meanwhile. A process in another cgroup is
// not killed.
func TestKill(t *testing.T) {
	h := newHierarchy(t)
	at, deep, beside := "/"+h.root+"/one", "/"+h.root+"/one/deep", "/"+h.root+"/two"
	bystander := waiter(t, beside)
	var ended []*exec.Cmd
	for _, path := range []string{at, deep} {
		cmd := exec.Command("sh", "-c", "trap '' TERM INT HUP; read go; while :; do sleep 1000 & wait; done")
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill() })
		m, err := managerAt(path)
		if err == nil {
			err = m.Apply(cmd.Process.Pid)
		}
		if err != nil {
			t.Fatal(err)
		}
		in.Write([]byte("go\n"))
		ended = append(ended, cmd)
	}
	if found, err := Kill(t.Context(), at); !found || err != nil {
		t.Errorf("found %v, %v", found, err)
	}
	for _, cmd := range ended {
		if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("the process ended with %v", err)
		}
	}
	if found, err := Kill(t.Context(), at); found || err != nil {
		t.Errorf("again: found %v, %v", found, err)
	}
	if found, err := Kill(t.Context(), "/"+h.root+"/none"); found || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing cgroup: found %v, %v", found, err)
	}
	if now := in(t, bystander); now != beside {
		t.Errorf("the bystander is in %s", now)
	}
	for _, path := range []string{"", "/", "..", "/a/.."} {
		if dir, err := dirOf(path); err == nil {
			t.Errorf("%q: got %s, want an error", path, dir)
		}
	}
}
