package podvolumes

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// tmpfsMounter mounts tmpfs volumes. The contents of these volumes must not be written to a disk. So tmpfsMounter
// excludes the volumes from swap, as a kubelet does. This is possible since Linux 6.4.
// https://kubernetes.io/docs/concepts/cluster-administration/swap-memory-management/#memory-backed-volumes
type tmpfsMounter struct {
	log       *slog.Logger
	mount     func(dir, options string) error
	readSwaps func() ([]byte, error) // /proc/swaps
	warnOnce  sync.Once
}

func newMemory(log *slog.Logger) *tmpfsMounter {
	return &tmpfsMounter{
		log:       log,
		mount:     func(dir, options string) error { return unix.Mount("tmpfs", dir, "tmpfs", 0, options) },
		readSwaps: func() ([]byte, error) { return os.ReadFile("/proc/swaps") },
	}
}

// mountAt mounts a tmpfs. If swap is on and the kernel cannot exclude the tmpfs from swap, mountAt logs a warning
// once.
func (m *tmpfsMounter) mountAt(dir, options string) error {
	err := m.mount(dir, options+",noswap")
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) { // the kernel is old, or this is a user namespace
		m.warnOnce.Do(m.warnSwap)
		err = m.mount(dir, options)
	}
	if err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	return nil
}

func (m *tmpfsMounter) warnSwap() {
	text, err := m.readSwaps()
	if err != nil || m.log == nil || strings.Count(strings.TrimSpace(string(text)), "\n") == 0 { // the file contains only its header
		return
	}
	m.log.Warn("this kernel cannot keep memory volumes out of swap (Linux 6.4 or later can): " +
		"Secrets and tokens of pods may be written to the swap device; turn swap off, or encrypt it")
}
