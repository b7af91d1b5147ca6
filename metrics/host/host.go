package host

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"github.com/shirou/gopsutil/v3/common"
)

// Config is the configuration of a Host.
type Config struct {
	// Root is the directory that contains the directories proc, sys and etc. The default is /.
	Root string
	// MinInterval is the maximum age of a returned Usage. It is also the minimum interval over which the mean CPU usage is computed. The
	// default is 1 s.
	MinInterval time.Duration
}

// Host measures one machine. Its methods are safe for concurrent use.
type Host struct {
	root        string
	minInterval time.Duration
	env         common.EnvMap

	mu       sync.Mutex
	identity *Identity
	last     *Usage
}

// New returns a Host. It reads nothing.
func New(c Config) *Host {
	h := &Host{root: c.Root, minInterval: c.MinInterval}
	if h.root == "" {
		h.root = "/"
	}
	if h.minInterval == 0 {
		h.minInterval = time.Second
	}
	h.env = common.EnvMap{
		common.HostRootEnvKey: h.root,
		common.HostProcEnvKey: h.path("proc"),
		common.HostSysEnvKey:  h.path("sys"),
		common.HostEtcEnvKey:  h.path("etc"),
	}
	return h
}

func (h *Host) path(rel string) string { return filepath.Join(h.root, rel) }

// withPaths returns a context with the paths for gopsutil.
func (h *Host) withPaths(ctx context.Context) context.Context {
	return context.WithValue(ctx, common.EnvKey, h.env)
}
