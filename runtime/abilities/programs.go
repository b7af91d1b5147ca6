package abilities

import (
	"os"
	"path/filepath"
)

// Programs returns the OCI runtimes to try if none is configured, in the order of preference: the
// shipped crun, then crun and runc in $PATH.
//
// The shipped crun is preferred because it is statically linked and needs a quarter of the CPU time
// of a dynamically linked crun or of runc (docs/performance.md), and because releases of islet can
// fix its bugs.
func Programs() []string {
	names := []string{"crun", "runc"}
	if shipped := ShippedCrun(); shipped != "" {
		names = append([]string{shipped}, names...)
	}
	return names
}

// ShippedCrun returns the path of the crun that was installed with islet: ../lib/islet/crun, relative
// to the directory of this program. It returns "" if the file does not exist or is not executable.
func ShippedCrun() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	return shippedFor(self)
}

func shippedFor(program string) string {
	path := filepath.Join(filepath.Dir(filepath.Dir(program)), "lib", "islet", "crun")
	if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() || st.Mode()&0o111 == 0 {
		return ""
	}
	return path
}
