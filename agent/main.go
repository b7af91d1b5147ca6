package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/islet-edge/islet/agent/config"
	"github.com/islet-edge/islet/agent/process"
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
	log := process.Logger(cfg, stderr)
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
	switch err := process.Bounded(ctx, func() error { return Run(ctx, cfg, version, log) }); {
	case errors.Is(err, process.ErrAbandoned):
		log.Warn("the agent ends; its pods go on running, and the next start takes up what it leaves half done", "error", err)
	case err != nil:
		log.Error("the agent ends", "error", err)
		return 1
	default:
		log.Info("the agent ends; its pods go on running")
	}
	return 0
}
