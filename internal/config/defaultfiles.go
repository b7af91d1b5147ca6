package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// DefaultDir is the directory of the configuration files that are read if the command line names none.
const DefaultDir = "/etc/islet"

// Names of the files in DefaultDir.
const (
	defaultKubeletFile = "kubelet.yaml"
	defaultEdgeFile    = "edge.yaml"
)

// useDefaultFiles sets --config and --edge-config to the files in dir that exist. If one of these flags is on the
// command line, its value is used instead of the default file, even if the value is empty. On a damaged disk it may be
// impossible to determine whether a file exists. The flag is then set as if the file existed. So a later read of the
// file returns the file's copy or an error. If dir is empty, there are no default files.
func (fs flagSet) useDefaultFiles(dir string, o *options, own *ownFiles) {
	if dir == "" {
		return
	}
	for _, d := range []struct {
		flag, file string
		value      *string
	}{{"config", defaultKubeletFile, &o.Config}, {"edge-config", defaultEdgeFile, &o.EdgeConfig}} {
		if path := filepath.Join(dir, d.file); !fs.Changed(d.flag) && own.exists(path) {
			*d.value = path
		}
	}
}

// exists reports whether path exists. A symbolic link exists even if its target does not, for example because the target's disk is not
// mounted. Load then returns an error for the link. So the node does not run with the defaults in place of its configuration.
func (o *ownFiles) exists(path string) bool {
	if data, isGiven := o.given[path]; isGiven {
		return data != nil
	}
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// Files returns the node's own configuration files that were read, as absolute paths in the order of reading: the
// KubeletConfiguration, its drop-in files, and the EdgeConfiguration. A configuration that was sent to the node replaces
// the values of the KubeletConfiguration and of the EdgeConfiguration, but not the values of the drop-in files.
func (c *Config) Files() []string {
	names := []string{}
	if c.files == nil {
		return names
	}
	for _, f := range c.files.current {
		names = append(names, f.Name)
	}
	return names
}
