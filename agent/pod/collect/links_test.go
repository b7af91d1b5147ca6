package collect

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestLinks(t *testing.T) {
	root := t.TempDir()
	l := &Links{Dir: filepath.Join(root, "containers"), Logs: filepath.Join(root, "pods")}
	log := func(uid, name string) string {
		path := filepath.Join(l.Logs, "ns_web_"+uid, name, "0.log")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	left := func(want ...string) {
		t.Helper()
		entries, err := os.ReadDir(l.Dir)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range entries {
			got = append(got, e.Name())
		}
		if !slices.Equal(got, want) {
			t.Errorf("links %q, not %q", got, want)
		}
	}
	a, b, c := log("u1", "a"), log("u1", "b"), log("u2", "c")
	for range 2 { // a repeated call has no effect
		for path, of := range map[string]string{a: "u1", b: "u1", c: "u2"} {
			name := filepath.Base(filepath.Dir(path))
			if err := l.Link(pod(of), name, "id"+name, path); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.Link(pod("u3"), "silent", "id", filepath.Join(l.Logs, "ns_web_u3", "silent", "0.log")); err != nil {
		t.Error("a container without a log:", err)
	}
	foreign := filepath.Join(l.Dir, "foreign.log")
	if err := os.Symlink("/nowhere", foreign); err != nil {
		t.Fatal(err)
	}
	left("foreign.log", "web_ns_a-ida.log", "web_ns_b-idb.log", "web_ns_c-idc.log")
	if to, err := os.Readlink(filepath.Join(l.Dir, "web_ns_a-ida.log")); err != nil || to != a {
		t.Errorf("the link leads to %s, %v", to, err)
	}
	if err := l.Unlink(a); err != nil {
		t.Error(err)
	}
	left("foreign.log", "web_ns_b-idb.log", "web_ns_c-idc.log")
	if err := errors.Join(os.Remove(b), l.Sweep()); err != nil { // as in the middle of a rotation
		t.Fatal(err)
	}
	left("foreign.log", "web_ns_b-idb.log", "web_ns_c-idc.log")
	if err := errors.Join(os.Remove(filepath.Dir(b)), l.Sweep()); err != nil {
		t.Fatal(err)
	}
	left("foreign.log", "web_ns_c-idc.log")
	l = &Links{Dir: l.Dir, Logs: l.Logs} // after a restart of the agent
	d := log("u4", "d")
	for _, of := range []string{"u4", "u4"} {
		if err := l.Link(pod(of), "d", "idd", d); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.RemoveAll(filepath.Join(l.Logs, "ns_web_u2")), l.Sweep()); err != nil {
		t.Error(err)
	}
	left("foreign.log", "web_ns_d-idd.log")
	if err := l.Unlink(d); err != nil {
		t.Error(err)
	}
	left("foreign.log")

	long := log("u4", "c")
	p := pod("u4")
	p.Name = strings.Repeat("x", 253)
	if err := l.Link(p, "c", "id", long); err != nil {
		t.Fatal(err)
	}
	left("foreign.log", strings.Repeat("x", longestLink)+".log")
	if err := errors.Join(os.RemoveAll(filepath.Join(l.Logs, "ns_web_u4")), l.Sweep()); err != nil {
		t.Error(err)
	}
	left("foreign.log")
}
