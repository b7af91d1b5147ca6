package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/bundle/sealed"
	"github.com/islet-edge/islet/internal/finding"
)

// Env is the environment of the commands.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Getenv         func(string) string
	Version        string           // of islet
	Now            func() time.Time // reference time for the ages of objects
	// AgentPatience is the time for which a followed log waits for a stopped agent. The default is two minutes.
	AgentPatience time.Duration
	// ResponseTimeout is the timeout of other commands if the agent sends nothing. The default is 20 s to a minute.
	ResponseTimeout time.Duration
	// Agent runs the agent with the given flags, for islet agent.
	Agent func(args []string) int
	// Doctor checks the host and returns an exit code, for islet doctor.
	Doctor func(ctx context.Context, args []string, stdout, stderr io.Writer) int
	// AgentLog returns the end of the agent's log, for islet support. If it is nil, the log is read from a file
	// to which the agent writes its standard error, /var/log/islet.log, or the journal.
	AgentLog func(ctx context.Context) ([]byte, error)
	// Check checks manifests and configurations, for islet check. The parameter node is nil if no node is asked.
	Check func(files []finding.File, node *finding.Node) finding.Report
	// Fetch returns the content of a URL, for islet check.
	Fetch func(ctx context.Context, url string) ([]byte, error)
	// Inventory lists what manifests define and need, for islet bundle.
	Inventory func(files []finding.File) (*bundle.Inventory, error)
	// Secrets returns the Secrets of a manifest, for islet bundle seal.
	Secrets func(file finding.File) ([]sealed.Secret, error)
	// SelfTest checks whether this program can run on this machine, for islet self-test.
	SelfTest func(stdout, stderr io.Writer) int
	// Cleanup removes the pods and leftovers of a stopped agent from the host.
	Cleanup func(ctx context.Context, args []string, stdout, stderr io.Writer) int
	// Key seals the key of the database to a TPM, unseals it, or shows its state.
	Key func(args []string, stdin io.Reader, stdout, stderr io.Writer) int
}

// Exit codes, for scripts. islet exec returns the exit code of its command.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitUnreachable = 3
	ExitNotFound    = 4
	exitSignal      = 130
)

// An exitError is an error with an exit code. If the error is nil, nothing is printed.
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

// IsCommand reports whether the arguments are those of a command. A command of this name need not exist. If IsCommand
// returns false, the arguments are those of the agent. The agent has only flags.
//
// The arguments of a command begin with a name or the flag --socket, or request help. Without arguments, the command is
// help. There are two exceptions. In a service, a program without arguments is the agent, because a service file of an
// earlier version passes no argument if its ISLET_ARGS is empty. A program that is called as kubelet is also the agent
// if its arguments are empty or only --help.
func IsCommand(called string, args []string, service bool) bool {
	kubelet := filepath.Base(called) == "kubelet"
	if len(args) == 0 {
		return !service && !kubelet
	}
	switch name, _, _ := strings.Cut(args[0], "="); {
	case !strings.HasPrefix(name, "-"), name == socketFlag:
		return true
	case name == helpFlags:
		return true
	default:
		return !kubelet && len(args) == 1 && isHelp(name)
	}
}

const (
	socketFlag = "--socket"
	helpFlags  = "--help-flags" // prints the flags, as kubelet --help does
)

// leadingSocket removes the flag --socket in front of the command, and returns its value.
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

// Main runs the command that is named in args, and returns the exit code. Without arguments it shows the commands.
func Main(ctx context.Context, args []string, env Env) int {
	switch {
	case len(args) == 0:
		args = []string{"help"}
	case args[0] == helpFlags:
		args = []string{"agent", "--help"}
	}
	if args[0] == "agent" && env.Agent != nil {
		return env.Agent(args[1:]) // the agent handles signals itself
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	socket, args := leadingSocket(args)
	err := runInterruptible(ctx, func() error {
		return dispatch(ctx, commands(), nil, args, &tool{Env: env, out: env.Stdout, socket: socket})
	})
	var exit exitError
	switch {
	case err == nil:
		return ExitOK
	case ctx.Err() != nil:
		return exitSignal
	case errors.As(err, &exit):
		if exit.err != nil {
			printError(env.Stderr, err)
		}
		return exit.code
	}
	printError(env.Stderr, err)
	return ExitFailed
}

// cleanupTime is the time for which a command may clean up after ctx has ended, for example to restore the terminal.
const cleanupTime = 2 * time.Second

// runInterruptible runs a command. After ctx has ended, it waits at most cleanupTime for the end of the command. A
// command may be blocked in a system call that no context cancels, for example on a pipe without a writer.
func runInterruptible(ctx context.Context, run func() error) error {
	done := make(chan error, 1)
	go func() { done <- run() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(cleanupTime):
		return ctx.Err()
	}
}

// printError prints an error. It prints each of several joined errors on its own line.
func printError(w io.Writer, err error) {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range several.Unwrap() {
			printError(w, err)
		}
		return
	}
	fmt.Fprintf(w, "islet: %s\n", errorText(err))
}

// A tool is one run of a command.
type tool struct {
	Env
	out    io.Writer
	socket string
	args   int // number of arguments before "--"; -1 if there is no "--"
}

// dispatch finds the command in list, parses its flags and runs it.
func dispatch(ctx context.Context, list []command, path []string, args []string, t *tool) error {
	if len(args) == 0 || isHelp(args[0]) {
		printCommands(t.out, list, path)
		if len(args) == 0 {
			return exitError{ExitUsage, nil}
		}
		return nil
	}
	c := lookup(list, args[0])
	if words := findShortcut(args[0]); c == nil && len(path) == 0 && words != nil {
		return dispatch(ctx, list, path, append(words, args[1:]...), t)
	}
	if c == nil {
		return usage("unknown command %q%s", args[0], didYouMean(args[0], list))
	}
	path = append(path, c.name)
	if c.sub != nil {
		return dispatch(ctx, c.sub, path, args[1:], t)
	}
	flags, run := c.parse(t)
	if c.isAgent && !slices.ContainsFunc(args[1:], isHelp) {
		return run(ctx, args[1:])
	}
	switch err := flags.Parse(args[1:]); {
	case errors.Is(err, pflag.ErrHelp):
		c.printUsage(t.out, path, flags)
		return nil
	case err != nil:
		return usage("%s\nSee 'islet %s --help'", flagAdvice(err, flags), join(path))
	}
	if t.socket == "" {
		t.socket = api.DefaultSocket
	}
	if c.args == "" && flags.NArg() > 0 && !c.hidden && c.name != "prune" && path[0] != "get" { // prune itself returns an error with advice
		return usage("islet %s takes no arguments, not %q\nSee 'islet %s --help'", join(path), flags.Arg(0), join(path))
	}
	t.args = flags.ArgsLenAtDash()
	rest, err := t.removeKind(ctx, c, flags)
	if err != nil {
		return err
	}
	return run(ctx, rest)
}

func isHelp(arg string) bool { return slices.Contains([]string{"-h", "--help"}, arg) }
