// Islet makes a Linux machine a Kubernetes node. What this process is follows
// from how it was called: a CNI plugin by its name, a command by its first
// argument, else the agent.
package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/islet-edge/islet/agent"
	"github.com/islet-edge/islet/agent/change/selftest"
	"github.com/islet-edge/islet/agent/cli"
	"github.com/islet-edge/islet/net/cni"
)

var version = "0.0.0-dev" // set by the Makefile

// The main thread is kept for the main goroutine. A thread that makes the namespaces
// of a pod stays in them, and ends with its goroutine; the main thread would not end,
// and what /proc/self and /proc/net say of this process is said of its main thread.
func init() { runtime.LockOSThread() }

// What allocates is noted once somebody asks for it (/debug/pprof/heap): the notes are a table
// of 1.5 MiB, of which each place that allocates fills another page.
func init() { runtime.MemProfileRate = 0 }

func selfTest(stdout, stderr io.Writer) int { return selftest.Main(version, stdout, stderr) }

func main() { os.Exit(run()) }

func run() int {
	if name := filepath.Base(os.Args[0]); cni.IsPlugin(name) {
		return cni.Main(name, os.Args)
	}
	args := os.Args[1:]
	runAgent := func(args []string) int { return start(args, version, agent.Run, os.Stdout, os.Stderr) }
	if cli.IsCommand(os.Args[0], args, cli.AtTerminal(os.Stdin, os.Stdout)) {
		return cli.Main(context.Background(), args, cli.Env{
			Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Version: version, Now: time.Now,
			Agent: runAgent, Doctor: agent.Doctor, Cleanup: agent.Cleanup, SelfTest: selfTest,
		})
	}
	return runAgent(args)
}
