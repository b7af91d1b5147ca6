package abilities

import (
	"os"
	"path/filepath"
)

// Programs are the OCI runtimes that serve a node whose configuration names none, the
// best first: that which was installed with this program, then those of the host by name.
//
// The shipped one comes first, wherever it works: it is crun as one static program, which
// needs a quarter of the CPU time that the host's takes, dynamically linked, or runc of
// any kind (docs/performance.md), and its faults are corrected with those of this program.
func Programs() []string {
	names := []string{"crun", "runc"}
	if shipped := Shipped(); shipped != "" {
		names = append([]string{shipped}, names...)
	}
	return names
}

// Shipped is the OCI runtime that was installed with this program: crun in lib/islet
// beside the directory that this program is in. It is empty where there is none.
func Shipped() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	return besides(self)
}

func besides(program string) string {
	path := filepath.Join(filepath.Dir(filepath.Dir(program)), "lib", "islet", "crun")
	if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() || st.Mode()&0o111 == 0 {
		return ""
	}
	return path
}
