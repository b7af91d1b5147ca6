package config

import (
	"fmt"
	"os"
	"path/filepath"
)

// Make creates the subdirectories of the root directory that plugins (CSI drivers, device plugins,
// monitors) mount or use for their sockets, because some plugins look for them before any pod
// exists. The modes are a kubelet's.
func (d Dirs) Make() error {
	for _, name := range []string{"", "pods", "plugins", "plugins_registry", "pod-resources", "device-plugins"} {
		err := os.MkdirAll(filepath.Join(d.Root, name), 0o750)
		needed := name == "" || name == "pods"
		if err != nil && needed {
			return fmt.Errorf("make the root directory (--root-dir): %w", err)
		}
		// Errors are ignored for the other directories, because pods run without them. The packages
		// that use them report errors.
	}
	return nil
}
