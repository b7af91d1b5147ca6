package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/agent/api"
)

// Env is what the commands take from their process.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Getenv         func(string) string
	Version        string           // of islet
	Now            func() time.Time // what ages are counted to
	// AgentPatience is how long a followed log waits for an agent that stopped; 0:
	// two minutes.
	AgentPatience time.Duration
	// Doctor checks the host and returns an exit code; it serves islet doctor.
	Doctor func(ctx context.Context, args []string, stdout, stderr io.Writer) int
	// Cleanup removes what an agent that is stopped has on the host.
	Cleanup func(ctx context.Context, args []string, stdout, stderr io.Writer) int
}

// Exit codes, for scripts. exec returns the command's own.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitUnreachable = 3
	ExitNotFound    = 4
	exitSignal      = 130
)

// An exitError is an error that chooses the exit code. With a nil error nothing
// is printed.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e exitError) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return exitError{ExitUsage, fmt.Errorf(format, args...)}
}

// IsCommand says whether the first argument of the process is meant as a command,
// right or wrong, or as the socket that one is to use. The agent takes flags only,
// and none of this name.
func IsCommand(arg string) bool {
	name, _, _ := strings.Cut(arg, "=")
	return !strings.HasPrefix(arg, "-") || name == socketFlag
}

const socketFlag = "--socket"

// leadingSocket takes the socket off the front, where other tools have such flags.
func leadingSocket(args []string) (socket string, rest []string) {
	if len(args) == 0 {
		return "", args
	}
	name, socket, joined := strings.Cut(args[0], "=")
	if name != socketFlag {
		return "", args
	}
	rest = args[1:]
	if !joined && len(rest) > 0 {
		socket, rest = rest[0], rest[1:]
	}
	return socket, rest
}

// Main runs a command, named by the first of args that is not about the socket, and
// returns the exit code.
func Main(ctx context.Context, args []string, env Env) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	socket, args := leadingSocket(args)
	err := dispatch(ctx, commands(), nil, args, &tool{Env: env, out: env.Stdout, socket: socket})
	var exit exitError
	switch {
	case err == nil:
		return ExitOK
	case ctx.Err() != nil:
		return exitSignal
	case errors.As(err, &exit):
		if exit.err != nil {
			fmt.Fprintf(env.Stderr, "islet: %v\n", err)
		}
		return exit.code
	}
	fmt.Fprintf(env.Stderr, "islet: %v\n", err)
	return ExitFailed
}

// A tool is one run of a command.
type tool struct {
	Env
	out    io.Writer
	socket string
	args   int // arguments before "--", or -1
}

// dispatch finds the command of args among list, parses its flags and runs it.
func dispatch(ctx context.Context, list []command, path []string, args []string, t *tool) error {
	if len(args) == 0 || isHelp(args[0]) {
		printCommands(t.out, list, path)
		if len(args) == 0 {
			return exitError{ExitUsage, nil}
		}
		return nil
	}
	c := lookup(list, args[0])
	if c == nil {
		return usage("unknown command %q%s", args[0], didYouMean(args[0], list))
	}
	path = append(path, c.name)
	if c.sub != nil {
		return dispatch(ctx, c.sub, path, args[1:], t)
	}
	flags, run := c.parse(t)
	if c.agent && !slices.ContainsFunc(args[1:], isHelp) {
		return run(ctx, args[1:])
	}
	switch err := flags.Parse(args[1:]); {
	case errors.Is(err, pflag.ErrHelp):
		c.printUsage(t.out, path, flags)
		return nil
	case err != nil:
		return usage("%v\nSee 'islet %s --help'", err, join(path))
	}
	if t.socket == "" {
		t.socket = api.DefaultSocket
	}
	t.args = flags.ArgsLenAtDash()
	return run(ctx, flags.Args())
}

func isHelp(arg string) bool { return slices.Contains([]string{"-h", "--help"}, arg) }
