package cli

import "github.com/islet-edge/islet/agent/cli/clitest"

// The tests of this package run commands, as users do.
var (
	run       = clitest.Run(Main)
	check     = clitest.Check
	startNode = clitest.Node
	env       = clitest.Env
	now       = clitest.Now
)
