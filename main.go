//go:build linux

// Islet makes a Linux machine a Kubernetes node. The program's name and arguments select the task of the process. Under the name of a CNI
// plugin, it runs the plugin. With a command as the first argument, it runs the command. With flags, or as kubelet, it runs the agent.
// Without arguments it prints help.
package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/islet-edge/islet/agent"
	"github.com/islet-edge/islet/agent/change/bundle/medium"
	"github.com/islet-edge/islet/agent/change/configure"
	"github.com/islet-edge/islet/agent/change/guard"
	"github.com/islet-edge/islet/agent/change/selfcheck"
	"github.com/islet-edge/islet/agent/cli"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cluster/setup"
	"github.com/islet-edge/islet/agent/doctor"
	"github.com/islet-edge/islet/agent/host/backups"
	"github.com/islet-edge/islet/agent/host/sealkey"
	"github.com/islet-edge/islet/edge/inventory"
	manifests "github.com/islet-edge/islet/edge/source"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/net/cni"
)

var version = "0.0.0-dev" // set by the Makefile

// Lock the main goroutine to the main thread. A thread that creates a pod's namespaces stays in them and must end with its goroutine. The
// main thread must not create such namespaces: it does not end with its goroutine, and /proc/self and /proc/net show the namespaces of the
// main thread.
func init() { runtime.LockOSThread() }

// Record allocations only after the first request for them (/debug/pprof/heap). The records need a table of 1.5 MiB, with an entry for
// each call stack that allocates. GODEBUG=memprofilerate=1 records all allocations since the start (TestHeap in test/bench).
func init() {
	if !strings.Contains(os.Getenv("GODEBUG"), "memprofilerate=") {
		runtime.MemProfileRate = 0
	}
}

func selfTest(stdout, stderr io.Writer) int { return selfcheck.Main(version, stdout, stderr) }

func key(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return sealkey.Main(args, sealkey.Env{Stdin: stdin, Stdout: stdout, Stderr: stderr, Load: loadInstalled})
}

// installed returns the flags that the service of this machine passes to the agent.
func installed() ([]string, bool) { return doctor.ServiceFlags(os.DirFS("/")) }

// planned is like installed, also for a service that is not installed yet.
func planned() ([]string, bool) { return doctor.PlannedFlags(os.DirFS("/")) }

// orInstalled returns the arguments of a command that takes the flags of an agent after its own arguments. If args contains no flags,
// orInstalled appends the flags of the service.
func orInstalled(args []string, service func() ([]string, bool)) []string {
	if slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "-") }) {
		return args
	}
	flags, _ := service()
	return slices.Concat(args, flags)
}

// loadInstalled returns the configuration of an agent with the given flags. Without flags, it returns the configuration of the service.
func loadInstalled(flags []string) (*config.Config, []config.Notice, error) {
	return configure.Load(orInstalled(flags, installed))
}

func setUp(args []string, stdout, stderr io.Writer) int {
	return setup.Main(orInstalled(args, installed), configure.Load, stdout, stderr)
}

// cleanup removes the pods of an agent with the given flags. Without flags, it removes the pods of the service's agent.
func cleanup(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		args = ofRemoved(orInstalled(args, installed))
	}
	return agent.Cleanup(ctx, args, stdout, stderr)
}

// ofRemoved returns the flags of a service without a --config and --edge-config whose file does not exist. kubeadm reset removes such a
// file. The other flags still have the directories of the agent.
func ofRemoved(flags []string) []string {
	return slices.DeleteFunc(slices.Clone(flags), func(flag string) bool {
		name, file, _ := strings.Cut(flag, "=")
		if name != "--config" && name != "--edge-config" || file == "" {
			return false
		}
		_, err := os.Stat(file)
		return errors.Is(err, fs.ErrNotExist)
	})
}

func backup(ctx context.Context, verb string, args []string, t *command.Tool, ask command.AskBackup) int {
	return backups.Main(ctx, verb, args, backups.Env{
		Stdin: t.Stdin, Stdout: t.Stdout, Stderr: t.Stderr, Version: version, Socket: t.Socket, Ask: ask, Now: time.Now,
		Load: configure.Load, ServiceFlags: doctor.ServiceFlags, StartCommand: doctor.StartCommand,
	})
}

func main() { os.Exit(run()) }

func run() int {
	if name := filepath.Base(os.Args[0]); cni.IsPlugin(name) {
		return cni.Main(name, os.Args)
	} else if name == medium.Program {
		return medium.Main()
	}
	args := os.Args[1:]
	runAgent := func(args []string) int { return start(args, version, agent.Run, os.Stdout, os.Stderr) }
	if cli.IsCommand(os.Args[0], args, guard.IsService()) {
		return cli.Main(context.Background(), args, cli.Env{
			Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Version: version, Now: time.Now,
			Agent: runAgent, Doctor: agent.Doctor, ServiceFlags: installed, PlannedFlags: planned, Cleanup: cleanup, SelfTest: selfTest,
			Check: checkFiles, Fetch: manifests.Fetch, Key: key, Backup: backup, SetUp: setUp, Inventory: inventory.Read,
			Secrets: inventory.Secrets,
		})
	}
	return runAgent(args)
}
