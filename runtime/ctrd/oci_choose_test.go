package ctrd

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/islet-edge/islet/runtime/shim/wire"
)

// TestOCIOfState checks which OCI runtime is called if a record does not contain one. The state of crun must never be passed to runc, and
// the state of runc never to crun.
func TestOCIOfState(t *testing.T) {
	programs, state := t.TempDir(), t.TempDir()
	t.Setenv("PATH", programs)
	path := func(name string) string { return filepath.Join(programs, name) }
	for _, name := range []string{"crun", "runc"} {
		if err := os.WriteFile(path(name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for id, file := range map[string]string{"by-crun": "status", "by-runc": "state.json"} {
		if err := os.Mkdir(filepath.Join(state, id), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(state, id, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ inUse, id, want string }{
		{"/usr/lib/islet/crun", "by-crun", "/usr/lib/islet/crun"},
		{"/usr/lib/islet/crun", "by-runc", path("runc")},
		{"/usr/lib/islet/crun", "unknown", "/usr/lib/islet/crun"},
		{path("runc"), "by-runc", path("runc")},
		{path("runc"), "by-crun", path("crun")},
		{"/opt/youki", "by-runc", "/opt/youki"}, // the state of any other OCI runtime is not recognized
	} {
		r := &Runtime{oci: wire.OCI{Path: c.inUse, Root: state}, dirs: dirs{state: state}}
		if got := r.ociOfState(c.id); got.Path != c.want || got.Root != state {
			t.Errorf("%s in use, %s: %+v, want %s", c.inUse, c.id, got, c.want)
		}
	}
}
