package cni

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/utils"

	"github.com/islet-edge/islet/internal/inputweight"
	"github.com/islet-edge/islet/internal/regular"
)

// These limits apply to the configuration directory, which network add-ons write.
const (
	maxConf    = 1 << 20 // maximum size of a configuration file, or of all plugin files of a list together, in bytes
	maxMemory  = 1 << 20 // maximum memory of a decoded file, in bytes
	maxPlugins = 32      // maximum number of plugins in a list
	maxFiles   = 1 << 10 // maximum number of entries in a directory
)

// configDir finds the CNI configuration in a directory: the first file by name that ends in .conf, .conflist or .json. Each check lists the
// directory and calls stat for the file. It reads the file only after a change. Add-ons replace their files while pods start, so a valid
// configuration stays active while its file is missing or invalid.
type configDir struct {
	dir          string
	checkPlugins func(*libcni.NetworkConfigList) error // returns an error if a plugin is missing; may be nil
	useOthers    bool                                  // also use configurations of other programs, see OfAnother
	skipUnusable bool                                  // skip files that cannot be used, see Network.fallsBack

	mu     sync.Mutex
	seen   []fileVersion             // the files that the last check has found
	list   *libcni.NetworkConfigList // the active configuration, or nil before the first one
	path   string                    // the file of list
	err    error                     // the reason why the file in the directory is not active
	others map[fileVersion]bool      // the result of OfAnother for each file version
}

// fileVersion identifies a version of a file.
type fileVersion struct {
	path string
	size int64
	time time.Time
}

// currentList returns the active configuration, or nil if there was none yet. If the files in the directory cannot be used, it also
// returns an error, even while an earlier configuration is active. An unusable file is skipped only if c.skipUnusable is set.
func (c *configDir) currentList() (*libcni.NetworkConfigList, error) {
	if c.dir == "" {
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now, err := c.listFiles()
	if err != nil {
		return c.list, fmt.Errorf("CNI configuration: %w", err)
	}
	fresh := func(s fileVersion) bool { return time.Since(s.time) < 2*time.Second } // such a file may change again without a new timestamp
	if slices.Equal(now, c.seen) && c.err == nil && !slices.ContainsFunc(now, fresh) {
		return c.list, nil
	}
	c.seen, c.err = now, nil
	if len(now) == 0 {
		if c.list != nil {
			c.err = fmt.Errorf("CNI configuration %s was removed: network %s stays in use until islet restarts", c.path, c.list.Name)
		}
		return c.list, c.err
	}
	list, path, err := c.selectFile(now)
	c.err = err
	switch {
	case list != nil:
		c.path = path
		if c.list == nil || !equalLists(list, c.list) {
			c.list = list
		}
		if err != nil {
			c.err = fmt.Errorf("%w (network %s of %s is in use)", err, list.Name, path)
		}
	case c.list != nil:
		c.err = fmt.Errorf("%w (the previous network %s stays in use)", err, c.list.Name)
	}
	return c.list, c.err
}

// selectFile selects the first file and returns its configuration, or an error if the file cannot be used. If c.skipUnusable is set,
// unusable files are skipped, and their errors are returned, too. The file of the active configuration is never skipped. The caller holds
// mu.
func (c *configDir) selectFile(files []fileVersion) (list *libcni.NetworkConfigList, path string, err error) {
	var errs []error
	for _, file := range files {
		list, err := loadConfig(file.path)
		if err == nil && c.checkPlugins != nil {
			err = c.checkPlugins(list)
		}
		if err == nil {
			return list, file.path, errors.Join(errs...)
		}
		errs = append(errs, err)
		if !c.skipUnusable || c.list != nil && file.path == c.path {
			break
		}
	}
	return nil, "", errors.Join(errs...)
}

// activeFile returns the path of the active configuration, or "".
func (c *configDir) activeFile() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.path
}

// equalLists reports whether two lists are equal.
func equalLists(a, b *libcni.NetworkConfigList) bool {
	return a.Name == b.Name && a.CNIVersion == b.CNIVersion && bytes.Equal(a.Bytes, b.Bytes) &&
		slices.EqualFunc(a.Plugins, b.Plugins, func(x, y *libcni.PluginConfig) bool { return bytes.Equal(x.Bytes, y.Bytes) })
}

// listFiles returns the configuration files that may become active: only the first one, or all of them if c.skipUnusable is set. It ignores
// files of other programs unless c.useOthers is set. The caller holds mu.
func (c *configDir) listFiles() (candidates []fileVersion, err error) {
	files, err := filesIn(c.dir, ".conf", ".conflist", ".json")
	if err != nil {
		return nil, err
	}
	known := c.others
	c.others = map[fileVersion]bool{}
	for _, file := range files {
		s := fileVersion{path: file}
		info, err := os.Stat(file)
		switch {
		case err == nil:
			s.size, s.time = info.Size(), info.ModTime()
		case !c.skipUnusable:
			return nil, err
		}
		isOthers, found := known[s]
		if !found {
			isOthers = !c.useOthers && OfAnother(file) != ""
		}
		if isOthers {
			c.others[s] = true
			continue
		}
		candidates = append(candidates, s)
		if !c.skipUnusable {
			break
		}
	}
	return candidates, nil
}

func loadConfig(path string) (*libcni.NetworkConfigList, error) {
	data, err := regular.Read(path, maxConf)
	if err != nil {
		return nil, fmt.Errorf("CNI configuration: %w", err)
	}
	list, err := parseConfig(data, filepath.Ext(path) == ".conflist", filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("CNI configuration %s: %w", path, err)
	}
	return list, nil
}

// parseConfig parses a list, or the configuration of a single plugin. A list may have additional plugin files in the given directory.
func parseConfig(data []byte, isList bool, dir string) (*libcni.NetworkConfigList, error) {
	if err := inputweight.JSON(data, nil, maxMemory); err != nil {
		return nil, err
	}
	var list *libcni.NetworkConfigList
	var err error
	if isList {
		list, err = libcni.NetworkConfFromBytes(data)
	} else {
		var one *libcni.PluginConfig
		if one, err = libcni.NetworkPluginConfFromBytes(data); err == nil {
			list, err = libcni.ConfListFromConf(one)
		}
	}
	if err != nil {
		return nil, err
	}
	if err := utils.ValidateNetworkName(list.Name); err != nil {
		return nil, err
	}
	if isList && !list.LoadOnlyInlinedPlugins {
		more, err := morePlugins(filepath.Join(dir, list.Name))
		if err != nil {
			return nil, err
		}
		list.Plugins = append(list.Plugins, more...)
	}
	if len(list.Plugins) == 0 || len(list.Plugins) > maxPlugins {
		return nil, fmt.Errorf("%d plugins, must be 1 to %d", len(list.Plugins), maxPlugins)
	}
	return list, nil
}

// morePlugins reads the additional plugin files of a list, which are the .conf files in a directory, sorted by name. A missing directory is
// not an error. All files together may have maxConf bytes.
func morePlugins(dir string) (plugins []*libcni.PluginConfig, err error) {
	files, err := filesIn(dir, ".conf")
	if err != nil {
		return nil, err
	}
	if len(files) > maxPlugins {
		return nil, fmt.Errorf("%s has %d plugins, more than %d", dir, len(files), maxPlugins)
	}
	left := int64(maxConf)
	for _, file := range files {
		data, err := regular.Read(file, left)
		if err == nil {
			left -= int64(len(data))
			err = inputweight.JSON(data, nil, maxMemory/8)
		}
		var one *libcni.PluginConfig
		if err == nil {
			one, err = libcni.NetworkPluginConfFromBytes(data)
		}
		if err != nil {
			return nil, fmt.Errorf("plugin %s: %w", file, err)
		}
		plugins = append(plugins, one)
	}
	return plugins, nil
}

// filesIn returns the files of a directory that have one of the given extensions, sorted by name. It returns no files if the directory
// does not exist, and an error if the directory has more than maxFiles entries.
func filesIn(dir string, endings ...string) (files []string, err error) {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	entries, err := d.ReadDir(maxFiles + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(entries) > maxFiles {
		return nil, fmt.Errorf("%s has more than %d entries", dir, maxFiles)
	}
	for _, e := range entries {
		if !e.IsDir() && slices.Contains(endings, filepath.Ext(e.Name())) {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(files)
	return files, nil
}
