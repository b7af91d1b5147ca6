package cni

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/islet-edge/islet/net/cni/plugin"
)

// IsPlugin reports whether a program name is the name of a built-in CNI plugin.
func IsPlugin(name string) bool { return plugin.IsBuiltIn(name) }

// Main runs a built-in plugin as an executable, and returns the exit code. The name of the program is the plugin type. The request is in
// CNI_ variables and on stdin. The arguments of the process include the name of the program.
func Main(name string, args []string) int {
	if len(args) > 1 {
		fmt.Fprintf(os.Stderr, "%s takes no arguments: CNI plugins read CNI_COMMAND and stdin\n", name)
	}
	return plugin.Main(name)
}

// HasPlugin reports whether a plugin of the given type exists: built in, or as a file in one of the directories.
func HasPlugin(binDirs []string, kind string) bool {
	if plugin.IsBuiltIn(kind) {
		return true
	}
	return slices.ContainsFunc(binDirs, func(dir string) bool {
		info, err := os.Stat(filepath.Join(dir, filepath.Base(kind)))
		return err == nil && info.Mode().IsRegular()
	})
}

// linksDir returns the directory in which Install creates links. It is the last directory of CNI_PATH.
func linksDir(dataDir string) string { return filepath.Join(dataDir, "bin") }

// Install creates links to the binary for the built-in plugin types. Their directory is on the CNI_PATH of all plugins, so third-party
// plugins can delegate to the built-in ones.
func Install(dataDir, binary string) error {
	dir := linksDir(dataDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("install CNI plugins: %w", err)
	}
	for _, kind := range plugin.Types() {
		link := filepath.Join(dir, kind)
		if to, err := os.Readlink(link); err == nil && to == binary {
			continue
		}
		_ = os.Remove(link + ".new")
		if err := os.Symlink(binary, link+".new"); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("install CNI plugin %s: %w", kind, err)
		}
		if err := os.Rename(link+".new", link); err != nil {
			return fmt.Errorf("install CNI plugin %s: %w", kind, err)
		}
	}
	return nil
}
