package config

import (
	"fmt"
	"os"
	"path/filepath"
)

// Make makes what lies in the root directory before any pod does: plugins of others
// (CSI drivers, device plugins, monitors) mount these directories or put their sockets
// there, and look for them before they start. The modes are a kubelet's.
func (d Dirs) Make() error {
	for _, name := range []string{"", "pods", "plugins", "plugins_registry", "pod-resources", "device-plugins"} {
		err := os.MkdirAll(filepath.Join(d.Root, name), 0o750)
		needed := name == "" || name == "pods"
		if err != nil && needed {
			return fmt.Errorf("make the root directory (--root-dir): %w", err)
		}
		// Pods run without the other directories. The package that uses one reports its error.
	}
	return nil
}
