package cli

import (
	"context"

	"github.com/spf13/pflag"
)

// A command is one row of the table of commands.
type command struct {
	name     string
	aliases  []string
	args     string // for the usage line
	summary  string
	detail   string // further help
	argsKind argKind
	ownKinds bool // the command itself interprets the word "pod" as an argument: see removeKind
	sub      []command
	hidden   bool
	isAgent  bool // the command has the flags of the agent, which are not parsed here
	noAgent  bool // the command never connects to an agent, so its help does not show --socket; it accepts the flag for scripts
	// setup declares the flags and returns the function to run after parsing.
	setup func(t *tool, flags *pflag.FlagSet) runner
}

type runner func(ctx context.Context, args []string) error

// argKind is the kind of a command's arguments, for completion.
type argKind int

const (
	takesNothing argKind = iota
	takesPods
	takesImages
	takesFiles
	takesCommands
)
