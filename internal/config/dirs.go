package config

import (
	"fmt"
	"os"
	"path/filepath"
)

// Make creates the root directory and its subdirectories for plugins: CSI drivers, device plugins
// and monitors. Plugins mount these subdirectories, or create sockets in them. Some plugins need
// their subdirectory before any pod exists. The directories have the same modes as a kubelet's.
func (d Dirs) Make() error {
	for _, name := range []string{"", "pods", "plugins", "plugins_registry", "pod-resources", "device-plugins"} {
		err := os.MkdirAll(filepath.Join(d.Root, name), 0o750)
		needed := name == "" || name == "pods"
		if err != nil && needed {
			return fmt.Errorf("create the root directory (--root-dir): %w", err)
		}
		// The error for any other directory is ignored, because pods can run without this directory. The package that
		// uses the directory reports an error.
	}
	return nil
}
