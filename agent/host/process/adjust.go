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

// Adjust gives this process the OOM score, the limit of open files and the profile of
// contention that the configuration asks for, as far as it may. Containers get scores of
// their own, and the limit that the agent was started with.
func Adjust(cfg *config.Config, log *slog.Logger) {
	if cfg.Kubelet.EnableContentionProfiling {
		runtime.SetBlockProfileRate(1)
	}
	score := strconv.Itoa(int(*cfg.Kubelet.OOMScoreAdj))
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte(score), 0); err != nil {
		log.Debug("the kernel does not let islet protect itself from the OOM killer", "oomScoreAdj", score, "error", err)
	}
	if err := limitFiles(uint64(cfg.Kubelet.MaxOpenFiles)); err != nil {
		log.Debug("the limit of open files stays as it is", "error", err)
	}
}

// limitFiles sets the soft limit, and raises the hard one where that is needed and
// allowed. It goes past package syscall, which would pass the limit on to every
// process that is started from here.
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
	return fmt.Errorf("%d files are wanted, %d allowed", n, now.Max)
}
