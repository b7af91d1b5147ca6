package hostsettings

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/internal/config"
)

// TestKernelParameters checks that the agent sets the kernel parameters of a kubelet, and logs the changes. It leaves them with
// protectKernelDefaults, with its own run directory and in a container. A parameter that is missing or cannot be set does not affect the
// others.
func TestKernelParameters(t *testing.T) {
	if got, want := fmt.Sprint(config.KernelSettings()), "map[kernel/keys/root_maxbytes:25000000 kernel/keys/root_maxkeys:1000000 "+
		"kernel/panic:10 kernel/panic_on_oops:1 vm/overcommit_memory:1 vm/panic_on_oom:0]"; got != want {
		t.Errorf("a kubelet sets other parameters than %s", got)
	}
	const files = "vm/overcommit_memory=0 vm/panic_on_oom=0 kernel/panic=0 kernel/panic_on_oops=1 kernel/keys/root_maxkeys=1000000"
	for name, tt := range map[string]struct {
		run     string
		protect bool
		ns      string
		want    string
		logged  int
	}{
		"default": {"/run/islet", false, initialPIDNamespace,
			"vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 kernel/keys/root_maxkeys=1000000", 2},
		"no namespaces": {"/run/islet", false, "",
			"vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 kernel/keys/root_maxkeys=1000000", 2},
		"protected":     {"/run/islet", true, initialPIDNamespace, files, 0},
		"another agent": {"/run/other", false, initialPIDNamespace, files, 0},
		"a container":   {"/run/islet", false, "pid:[4026532187]", files, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			proc := t.TempDir()
			dir := filepath.Join(proc, "sys")
			if err := os.MkdirAll(filepath.Join(proc, "self/ns"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(tt.ns, filepath.Join(proc, "self/ns/pid")); err != nil && tt.ns != "" {
				t.Fatal(err)
			}
			if err := os.MkdirAll(filepath.Join(dir, "kernel/keys/root_maxbytes"), 0o755); err != nil {
				t.Fatal(err)
			}
			for _, f := range strings.Fields(files) {
				path, value, _ := strings.Cut(f, "=")
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, path), []byte(value+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			c := &config.Config{Dirs: config.Dirs{Run: tt.run}}
			c.Kubelet.ProtectKernelDefaults = tt.protect
			Settings{Config: c, Log: slog.New(slog.NewTextHandler(&log, nil)), Proc: proc}.setKernelParameters()
			for _, f := range strings.Fields(tt.want) {
				path, value, _ := strings.Cut(f, "=")
				got, err := os.ReadFile(filepath.Join(dir, path))
				if first, _, _ := strings.Cut(string(got), "\n"); err != nil || first != value {
					t.Errorf("%s is %q, want %s, %v", path, got, value, err)
				}
			}
			if n := strings.Count(log.String(), "\n"); n != tt.logged {
				t.Errorf("%d lines, want %d:\n%s", n, tt.logged, log.String())
			}
		})
	}
}
