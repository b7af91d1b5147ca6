package machine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// OCIWrapper puts an OCI runtime on the machine's disk that leaves a trace of what it
// is asked for, and does the work of the host's. It returns its path, and how often
// it was asked to do something.
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

// Handlers configures runtime handlers, by name and program, for the next start of the
// agent.
func (m *Machine) Handlers(of map[string]string) {
	m.t.Helper()
	text := fmt.Sprintf("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: %s/cni\nruntimeHandlers:\n", m.Disk)
	for name, program := range of {
		text += fmt.Sprintf("- {name: %s, ociRuntime: %s}\n", name, program)
	}
	m.Write("edge.yaml", text)
}
