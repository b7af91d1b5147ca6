// Command islet-shim is the parent process of the containers of some pods; see package server. It
// is embedded in islet. islet starts it in one of these ways:
//
//	islet-shim serve <name> [dir...]
//	                            serves the listening socket at file descriptor 3; with
//	                            directories, in a mount namespace of its own in which
//	                            they are hidden, and with the host's root directory and
//	                            mount namespace as descriptors 4 and 5
//	islet-shim init             the first process of a pod with a shared PID namespace
//	islet-shim true             exits at once; islet tests OCI runtimes with it
//	islet-shim compress <root> <file>  gzips a rotated log below root
//	islet-shim exec <pid file> <program> [arg...]
//	                            runs an OCI runtime that starts a detached command, and
//	                            waits for the command
package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/inherit"
	"github.com/islet-edge/islet/runtime/shim/server"
)

func main() {
	verb := ""
	if len(os.Args) > 1 {
		verb = os.Args[1]
	}
	var err error
	switch verb {
	case "serve":
		inherit.ResetShim()
		err = serve()
	case "init":
		initProcess()
	case "true":
	case "compress":
		err = compressIdly(os.Args[2], os.Args[3])
	case "exec":
		code := 0
		if code, err = runExec(os.Args[2], os.Args[3:]); err == nil {
			os.Exit(code)
		}
	default:
		err = fmt.Errorf("this program is started by islet; see islet help")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "islet-shim:", err)
		os.Exit(1)
	}
}

func serve() error {
	// A shim is mostly idle, so low memory usage is more important than speed.
	runtime.GOMAXPROCS(min(2, runtime.NumCPU()))
	debug.SetGCPercent(50)
	// A SIGINT or SIGHUP for the agent must not end the shim. The agent shuts down unused shims
	// itself. The signals are caught, not ignored, because child processes would inherit the
	// disposition SIG_IGN.
	signal.Notify(make(chan os.Signal, 1), unix.SIGINT, unix.SIGHUP)
	term := make(chan os.Signal, 1)
	signal.Notify(term, unix.SIGTERM)
	f := os.NewFile(3, "socket")
	// The socket is already listening. After this second call, SO_PEERCRED reports the PID of this
	// process to clients.
	if err := unix.Listen(3, unix.SOMAXCONN); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	l, err := net.FileListener(f)
	f.Close()
	if err != nil {
		return fmt.Errorf("file descriptor 3 is not a listening socket: %w", err)
	}
	log := slog.New(slog.NewTextHandler(&ownLog{f: os.Stderr, now: time.Now}, nil))
	var host *server.Host
	if hidden := os.Args[min(3, len(os.Args)):]; len(hidden) > 0 {
		if host, err = server.OpenHost(os.NewFile(4, "/"), os.NewFile(5, "mnt"), hidden); err != nil {
			return err
		}
	}
	s := server.New(log, host)
	go func() {
		<-term
		s.StopWhenIdle()
	}()
	return s.Run(context.Background(), l)
}

// initProcess reaps orphaned processes of the pod's containers until a signal ends it.
func initProcess() {
	sig := make(chan os.Signal, 8)
	signal.Notify(sig, unix.SIGCHLD, unix.SIGTERM, unix.SIGINT)
	for s := range sig {
		if s != unix.SIGCHLD {
			return
		}
		for {
			if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); pid <= 0 || err != nil && err != unix.EINTR {
				break
			}
		}
	}
}
