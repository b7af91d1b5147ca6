package top_test

import (
	"github.com/islet-edge/islet/agent/cli"
	"github.com/islet-edge/islet/agent/cli/clitest"
)

// The tests of this package run commands, as users do.
var (
	run       = clitest.Run(cli.Main)
	check     = clitest.Check
	startNode = clitest.Node
	now       = clitest.Now
)
