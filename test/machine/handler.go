package machine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// OCIWrapper writes a wrapper of the host's OCI runtime to the machine's disk. The wrapper records
// each command and then executes the runtime. OCIWrapper returns the wrapper's path, and a function
// that returns the number of runs of a command.
func (m *Machine) OCIWrapper(name string) (program string, calls func(verb string) int) {
	m.t.Helper()
	oci, err := exec.LookPath("runc")
	if err != nil {
		if oci, err = exec.LookPath("crun"); err != nil {
			m.t.Fatal(err)
		}
	}
	program, trace := filepath.Join(m.Disk, name), filepath.Join(m.Disk, name+".trace")
	m.Write(name, fmt.Sprintf("#!/bin/sh\necho \" $* \" >> %s\nexec %s \"$@\"\n", trace, oci))
	if err := os.Chmod(program, 0o755); err != nil {
		m.t.Fatal(err)
	}
	return program, func(verb string) int {
		b, err := os.ReadFile(trace)
		if err != nil && !os.IsNotExist(err) {
			m.t.Fatal(err)
		}
		return strings.Count(string(b), " "+verb+" ")
	}
}

// Runc returns the path of a current runc, which supports idmapped mounts. It is built once from
// its module, in the checkout's cache.
func Runc(t testing.TB) string {
	t.Helper()
	build := exec.Command(filepath.Join(Root(t), "test", "runc", "build.sh"))
	build.Stderr = os.Stderr
	out, err := build.Output()
	if err != nil {
		t.Fatalf("build runc: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// TaskShim returns the path of containerd's own shim for runc, in the version that islet is built
// with. It is built once from its module, in the checkout's cache.
func (m *Machine) TaskShim() string {
	m.t.Helper()
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}} {{.Version}}", "github.com/containerd/containerd/v2")
	list.Dir = Root(m.t)
	out, err := list.Output()
	if err != nil {
		m.t.Fatalf("find containerd's module: %v", err)
	}
	dir, version, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	path := filepath.Join(Root(m.t), ".cache", "containerd-shim-"+version, taskShimPrefix+"runc-v2")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-o", path, "./cmd/"+filepath.Base(path))
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		m.t.Fatalf("build containerd's shim: %v\n%s", err, out)
	}
	return path
}

const taskShimPrefix = "containerd-shim-"

// SetHandlers configures runtime handlers for the next start of the agent. It maps the names of
// handlers to programs. A program may be a containerd shim.
func (m *Machine) SetHandlers(programs map[string]string) {
	m.t.Helper()
	text := fmt.Sprintf("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: %s/cni\nruntimeHandlers:\n", m.Disk)
	for name, program := range programs {
		kind := "ociRuntime"
		if strings.HasPrefix(filepath.Base(program), taskShimPrefix) {
			kind = "shim"
		}
		text += fmt.Sprintf("- {name: %s, %s: %s}\n", name, kind, program)
	}
	m.Write("edge.yaml", text)
}
