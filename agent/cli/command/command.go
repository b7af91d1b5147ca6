package command

import (
	"context"

	"github.com/spf13/pflag"
)

// A Command is one row of the table of commands.
type Command struct {
	Name     string
	Aliases  []string
	Args     string // for the usage line
	Summary  string
	Detail   string // further help
	ArgsKind ArgKind
	OwnKinds bool // the command itself interprets the word "pod" as an argument, so package cli does not remove it
	// Sub are the subcommands. If the command also has a Setup, it runs itself unless its first argument names one of them.
	Sub     []Command
	Hidden  bool
	IsAgent bool // the command has the flags of the agent, which are not parsed here
	NoAgent bool // the command never connects to an agent, so its help does not show --socket; it accepts the flag for scripts
	// Setup declares the flags and returns the function to run after parsing.
	Setup func(t *Tool, flags *pflag.FlagSet) Runner
}

// A Runner runs a command with the arguments that are left after its flags.
type Runner func(ctx context.Context, args []string) error

// ArgKind is the kind of a command's arguments, for completion.
type ArgKind int

// The kinds of arguments.
const (
	TakesNothing ArgKind = iota
	TakesPods
	TakesImages
	TakesFiles
	TakesCommands
)
