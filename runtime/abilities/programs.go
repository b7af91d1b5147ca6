package abilities

import (
	"os"
	"path/filepath"
)

// Programs returns the OCI runtimes to try if the configuration names none. The first is the best:
// the one installed with this program, then those of the host by name.
//
// The shipped crun comes first for two reasons. It is a static program that needs a quarter of the
// CPU time of a dynamically linked crun or of runc (docs/performance.md), and its bugs are fixed in
// releases of islet.
func Programs() []string {
	names := []string{"crun", "runc"}
	if shipped := Shipped(); shipped != "" {
		names = append([]string{shipped}, names...)
	}
	return names
}

// Shipped returns the path of the OCI runtime that was installed with this program, which is crun
// in the directory lib/islet next to this program's directory. The path is empty if there is none.
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
