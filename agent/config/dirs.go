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
	for i, name := range []string{"", "pods", "plugins", "plugins_registry", "pod-resources", "device-plugins"} {
		// Without pods nothing works. What is wrong with another one is reported by who uses it.
		if err := os.MkdirAll(filepath.Join(d.Root, name), 0o750); err != nil && i < 2 {
			return fmt.Errorf("make the root directory (--root-dir): %w", err)
		}
	}
	return nil
}
