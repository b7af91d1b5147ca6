package host

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"github.com/shirou/gopsutil/v3/common"
)

// Config names what is measured.
type Config struct {
	// Root is the file system whose proc, sys and etc are read: / when empty.
	Root string
	// MinInterval is how old a Usage may be to be given again, which also is
	// the shortest time CPU use is averaged over: 1 s when zero.
	MinInterval time.Duration
}

// Host measures one machine. Its methods may be called at the same time.
type Host struct {
	root        string
	minInterval time.Duration
	env         common.EnvMap

	mu       sync.Mutex
	identity *Identity
	last     *Usage
}

// New gives a Host; it reads nothing yet.
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

// at tells gopsutil, which takes it from the context, where to read.
func (h *Host) at(ctx context.Context) context.Context {
	return context.WithValue(ctx, common.EnvKey, h.env)
}
