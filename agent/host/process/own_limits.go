package process

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/config"
)

// ApplySettings sets the configured OOM score, limit of open files and contention profile of this process, as far as
// permitted. Containers are not affected: they have their own OOM scores and the original limit of open files.
func ApplySettings(cfg *config.Config, log *slog.Logger) {
	if cfg.Kubelet.EnableContentionProfiling {
		runtime.SetBlockProfileRate(1)
	}
	score := strconv.Itoa(int(*cfg.Kubelet.OOMScoreAdj))
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte(score), 0); err != nil {
		log.Debug("cannot set the OOM score of the agent", "oomScoreAdj", score, "error", err)
	}
	if err := limitFiles(uint64(cfg.Kubelet.MaxOpenFiles)); err != nil {
		log.Debug("cannot change the limit of open files", "error", err)
	}
}

// limitFiles sets the soft limit of open files, and raises the hard limit if necessary and permitted. It does not use
// package syscall, which would also apply the limit to child processes.
func limitFiles(n uint64) error {
	var now unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &now); err != nil {
		return err
	}
	want := unix.Rlimit{Cur: n, Max: max(n, now.Max)}
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &want, nil); err == nil || n <= now.Max {
		return err
	}
	want = unix.Rlimit{Cur: now.Max, Max: now.Max}
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &want, nil); err != nil {
		return err
	}
	return fmt.Errorf("%d files are configured, but only %d are allowed", n, now.Max)
}
