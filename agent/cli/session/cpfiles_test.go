package session_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/runtime/stream/streamtest"
)

// TestCopyWithoutTar checks copies in both directions if the container has no tar.
func TestCopyWithoutTar(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", now, "bare")
	n.Root = filepath.Join(n.Dir, "root")
	here := t.TempDir()
	big := servertest.Bytes(servertest.OutputBytes)
	for _, dir := range []string{n.Root + "/etc", here + "/tree/sub"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, data := range map[string][]byte{n.Root + "/etc/conf": []byte("c"), here + "/one": []byte("1"), here + "/tree/sub/big": big} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	same := func(name string, want []byte) {
		t.Helper()
		if data, err := os.ReadFile(name); !bytes.Equal(data, want) {
			t.Errorf("%s: %d bytes, want %d, %v", name, len(data), len(want), err)
		}
	}
	check(t, n, run(t, n, "", "cp", "web:/etc/conf", here+"/got"), 0, "", "")
	same(here+"/got", []byte("c"))
	check(t, n, run(t, n, "", "cp", "web:etc", here), 0, "", "")
	same(here+"/etc/conf", []byte("c"))
	check(t, n, run(t, n, "", "cp", here+"/one", "web:/etc/two"), 0, "", "")
	same(n.Root+"/etc/two", []byte("1"))
	check(t, n, run(t, n, "", "cp", here+"/one", "web:/etc"), 0, "", "")
	same(n.Root+"/etc/one", []byte("1"))
	check(t, n, run(t, n, "", "cp", here+"/tree", "web:/etc/"), 0, "", "")
	same(n.Root+"/etc/tree/sub/big", big)
	check(t, n, run(t, n, "", "cp", "web:/etc/tree", here+"/back"), 0, "", "")
	same(here+"/back/sub/big", big)

	for _, c := range []struct {
		from, to, want string
		code           int
	}{
		{"web:/none", here + "/x", "open /none: no such file", command.ExitNotFound}, {here + "/one", "web:/none/x", "open /none/: no such file", command.ExitNotFound},
		{here + "/tree", "web:/none/", "open /none/: no such file", command.ExitNotFound}, {here + "/none", "web:/etc", "no such file", command.ExitNotFound},
	} {
		if got := run(t, n, "", "cp", c.from, c.to); got.Code != c.code || !strings.Contains(got.Err, c.want) {
			t.Errorf("%s to %s: %+v", c.from, c.to, got)
		}
	}
	n.Root = ""
	if got := run(t, n, "", "cp", "web:/etc", here+"/y"); got.Code != command.ExitFailed || !strings.Contains(got.Err, "cannot be reached") {
		t.Errorf("no root: %+v", got)
	}
	n.Root = filepath.Join(n.Dir, "root")
	class := "kata"
	pod := n.List()[0].DeepCopy()
	pod.Spec.RuntimeClassName = &class
	n.Put(pod)
	if got := run(t, n, "", "cp", "web:/etc", here+"/y"); got.Code != command.ExitFailed || !strings.Contains(got.Err, "runtime class kata") {
		t.Errorf("another runtime: %+v", got)
	}
}

// TestCopyWithoutTarBreaks checks that a copy whose connection breaks fails.
func TestCopyWithoutTarBreaks(t *testing.T) {
	n, _ := servertest.Start(t)
	n.Pod("web", now, "bare")
	n.Root = t.TempDir()
	if err := os.WriteFile(n.Root+"/big", servertest.Bytes(servertest.OutputBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	l := throughLink(t, n, streamtest.ForwardThenClose)
	if got := run(t, l, "", "cp", "web:/big", t.TempDir()); got.Code == command.ExitOK {
		t.Errorf("%+v", got)
	}
}
