//go:build !linux

// Islet on another system than Linux makes, signs and checks bundles and manifests. It has no agent.
package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/islet-edge/islet/agent/cli"
	"github.com/islet-edge/islet/edge/inventory"
)

var version = "0.0.0-dev" // set by the Makefile

func main() {
	os.Exit(cli.Main(context.Background(), os.Args[1:], cli.Env{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Version: version, Now: time.Now,
		Check: checkFiles, Fetch: fetch, Inventory: inventory.Read, Secrets: inventory.Secrets,
	}))
}

// fetch returns an error. The client that reads manifests from servers is part of the agent.
func fetch(context.Context, string) ([]byte, error) {
	return nil, errors.New("on this system islet reads no URLs: download the file first")
}
