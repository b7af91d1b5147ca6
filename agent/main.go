package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/islet-edge/islet/agent/config"
	"github.com/islet-edge/islet/agent/process"
	"github.com/islet-edge/islet/agent/server"
	"github.com/islet-edge/islet/agent/settle"
)

// Main is the agent as a process: it reads the command line, runs until SIGTERM
// or SIGINT, and returns the exit code. Its end is not the end of its pods.
func Main(args []string, version string, stdout, stderr io.Writer) int {
	cfg, notices, err := config.Load(args)
	if asked := (*config.Asked)(nil); errors.As(err, &asked) {
		if asked.Version && filepath.Base(os.Args[0]) != "kubelet" { // of which kubeadm and others read one line
			fmt.Fprintf(stdout, "islet %s\n", version)
		}
		fmt.Fprint(stdout, asked.Text)
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, "islet:", err)
		return 2
	}
	log := logger(cfg, stderr)
	for _, n := range notices {
		log.Info(n.String())
	}
	if err := errors.Join(cfg.CheckHost(os.DirFS("/"))...); err != nil {
		log.Error("this host is not what the configuration asks for; islet doctor reports more", "error", err)
		return 1
	}
	for _, concern := range cfg.Concerns(os.DirFS("/")) {
		log.Warn(concern)
	}
	settle.Busy()
	if cfg.Kubelet.EnableContentionProfiling {
		runtime.SetBlockProfileRate(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	process.Adjust(cfg, log)
	switch err := bounded(ctx, lastCalls, func() error { return Run(ctx, cfg, version, log) }); {
	case errors.Is(err, errAbandoned):
		log.Warn("the agent ends; its pods go on running, and the next start takes up what it leaves half done", "error", err)
	case err != nil:
		log.Error("the agent ends", "error", err)
		return 1
	default:
		log.Info("the agent ends; its pods go on running")
	}
	return 0
}

// lastCalls is how long calls that go on may take once the agent is to end.
const lastCalls = 8 * time.Second

// errAbandoned says that run did not end in time.
var errAbandoned = errors.New("an OCI runtime, a network plugin or a disk does not answer")

// bounded calls run, and leaves it behind when ctx has ended and run has not for
// that long: a process may be killed at any moment and lose nothing, so one whose
// helpers hang need not wait for them.
func bounded(ctx context.Context, patience time.Duration, run func() error) error {
	done := make(chan error, 1)
	go func() { done <- run() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		return errAbandoned
	}
}

func logger(cfg *config.Config, w io.Writer) *slog.Logger {
	level := &slog.LevelVar{}
	level.Set(cfg.LogLevel)
	options := &slog.HandlerOptions{Level: level}
	if cfg.Kubelet.Logging.Format == "json" {
		return slog.New(leveled{slog.NewJSONHandler(w, options), level})
	}
	return slog.New(leveled{slog.NewTextHandler(w, options), level})
}

// A leveled handler is one whose level /debug/flags/v may set while the agent runs.
type leveled struct {
	slog.Handler
	level *slog.LevelVar
}

// debugPaths adds to a kubelet's paths what this process knows of itself: its flags, and
// its log level.
func debugPaths(p server.Kubelet, flags []string, log *slog.Logger) server.Kubelet {
	p.Flags = flags
	if l, ok := log.Handler().(leveled); ok && *p.Config.EnableDebugFlagsHandler {
		p.SetLevel = func(v int) { l.level.Set(slog.Level(-v)) }
	}
	return p
}
