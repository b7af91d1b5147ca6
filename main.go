// Islet makes a Linux machine a Kubernetes node. What this process is follows
// from how it was called: a CNI plugin by its name, a command by its first
// argument, else the agent.
package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/islet-edge/islet/agent"
	"github.com/islet-edge/islet/agent/cli"
	"github.com/islet-edge/islet/net/cni"
)

var version = "0.0.0-dev" // set by the Makefile

func main() { os.Exit(run()) }

func run() int {
	if name := filepath.Base(os.Args[0]); cni.IsPlugin(name) {
		return cni.Main(name, os.Args)
	}
	args := os.Args[1:]
	if len(args) > 0 && cli.IsCommand(args[0]) {
		return cli.Main(context.Background(), args, cli.Env{
			Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Version: version, Now: time.Now,
			Doctor: agent.Doctor, Cleanup: agent.Cleanup,
		})
	}
	return agent.Main(args, version, os.Stdout, os.Stderr)
}
