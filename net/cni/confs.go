package cni

import (
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
)

// maxConf bounds a configuration file, maxPlugins what it may chain.
const (
	maxConf    = 1 << 20
	maxPlugins = 32
)

// confs finds the CNI configuration in a directory: the first file by name that
// ends in .conf, .conflist or .json. It looks when it is asked, which costs a
// listing and a stat; a file is read only when it changed. So a change counts for
// the next pod, and nothing watches meanwhile.
type confs struct {
	dir string

	mu   sync.Mutex
	seen stamp
	list *libcni.NetworkConfigList
	err  error
}

// stamp tells versions of a file apart.
type stamp struct {
	path string
	size int64
	time time.Time
}

// current returns the configuration, or nil when there is none. A file that is not
// valid is an error: the next one is not taken in its place.
func (c *confs) current() (*libcni.NetworkConfigList, error) {
	if c.dir == "" {
		return nil, nil
	}
	now, err := c.first()
	if err != nil {
		return nil, fmt.Errorf("CNI configuration: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now != c.seen || time.Since(now.time) < 2*time.Second { // a file system may count time coarsely
		c.seen, c.list, c.err = now, nil, nil
		if now.path != "" {
			c.list, c.err = load(now.path)
		}
	}
	return c.list, c.err
}

func (c *confs) first() (stamp, error) {
	files, err := libcni.ConfFiles(c.dir, []string{".conf", ".conflist", ".json"})
	if err != nil || len(files) == 0 {
		return stamp{}, err
	}
	slices.Sort(files)
	info, err := os.Stat(files[0])
	if err != nil {
		return stamp{}, err
	}
	return stamp{files[0], info.Size(), info.ModTime()}, nil
}

func load(path string) (*libcni.NetworkConfigList, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("CNI configuration: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxConf+1))
	if err != nil {
		return nil, fmt.Errorf("CNI configuration: %w", err)
	}
	list, err := parse(data, filepath.Ext(path) == ".conflist", filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("CNI configuration %s: %w", path, err)
	}
	return list, nil
}

// parse reads a list, or a single plugin's configuration. dir is where a list may
// have more plugins in files of their own.
func parse(data []byte, isList bool, dir string) (*libcni.NetworkConfigList, error) {
	if len(data) > maxConf {
		return nil, fmt.Errorf("longer than %d bytes", maxConf)
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
		more, err := libcni.NetworkPluginConfsFromFiles(dir, list.Name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		list.Plugins = append(list.Plugins, more...)
	}
	if len(list.Plugins) == 0 || len(list.Plugins) > maxPlugins {
		return nil, fmt.Errorf("%d plugins, must be 1 to %d", len(list.Plugins), maxPlugins)
	}
	return list, nil
}
