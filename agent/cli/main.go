package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/internal/api"
)

// Env is the environment of the commands.
type Env = command.Env

// IsCommand reports whether the arguments belong to a command. A command of this name need not exist. If IsCommand
// returns false, the arguments belong to the agent. The agent has only flags.
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
func Main(ctx context.Context, args []string, env command.Env) int {
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
		return dispatch(ctx, commands(), nil, args, &command.Tool{Env: env, Out: env.Stdout, Socket: socket})
	})
	var exit command.ExitError
	switch {
	case err == nil:
		return command.ExitOK
	case ctx.Err() != nil:
		return command.ExitSignal
	case errors.As(err, &exit):
		if exit.Err != nil {
			command.PrintError(env.Stderr, err)
		}
		return exit.Code
	}
	command.PrintError(env.Stderr, err)
	return command.ExitFailed
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

// dispatch finds the command in list, parses its flags and runs it.
func dispatch(ctx context.Context, list []command.Command, path []string, args []string, t *command.Tool) error {
	if len(args) == 0 || isHelp(args[0]) {
		printCommands(t.Out, list, path)
		if len(args) == 0 {
			return command.ExitWith(command.ExitUsage, nil)
		}
		return nil
	}
	c := lookup(list, args[0])
	if words := findShortcut(args[0]); c == nil && len(path) == 0 && words != nil {
		return dispatch(ctx, list, path, append(words, args[1:]...), t)
	}
	if c == nil {
		return command.Usage("unknown command %q%s", args[0], didYouMean(args[0], list))
	}
	path = append(path, c.Name)
	if runsSub(c, args[1:]) {
		return dispatch(ctx, c.Sub, path, args[1:], t)
	}
	flags, run := parseFlags(c, t)
	if c.IsAgent && !slices.ContainsFunc(args[1:], isHelp) {
		return run(ctx, args[1:])
	}
	switch err := flags.Parse(args[1:]); {
	case errors.Is(err, pflag.ErrHelp):
		printUsage(c, t.Out, path, flags)
		return nil
	case err != nil:
		return command.Usage("%s\nSee 'islet %s --help'", flagAdvice(err, flags), joinPath(path))
	}
	if t.Socket == "" {
		t.Socket = api.DefaultSocket
	}
	if c.Args == "" && flags.NArg() > 0 && !c.Hidden && c.Name != "prune" && path[0] != "get" { // prune itself returns an error with advice
		return command.Usage("islet %s takes no arguments, not %q\nSee 'islet %s --help'", joinPath(path), flags.Arg(0), joinPath(path))
	}
	t.ArgsBeforeDash = flags.ArgsLenAtDash()
	rest, err := removeKind(ctx, t, c, flags)
	if err != nil {
		return err
	}
	return run(ctx, rest)
}

// runsSub reports whether a subcommand runs, and not the command itself.
func runsSub(c *command.Command, args []string) bool {
	return c.Sub != nil && (c.Setup == nil || len(args) > 0 && lookup(c.Sub, args[0]) != nil)
}

func isHelp(arg string) bool { return slices.Contains([]string{"-h", "--help"}, arg) }

// removeKind removes the kind from the arguments "pod NAME". If a pod has the name of the kind, removeKind changes nothing. A kind without
// a name is an error, unless the flags select the pods.
func removeKind(ctx context.Context, t *command.Tool, c *command.Command, flags *pflag.FlagSet) ([]string, error) {
	args := flags.Args()
	if c.ArgsKind != command.TakesPods || c.OwnKinds || len(args) == 0 || !client.IsPodKind(args[0]) {
		return args, nil
	}
	namespace := ""
	if f := flags.Lookup("namespace"); f != nil {
		namespace = f.Value.String()
	}
	// Without an agent there is no pod with this name, and the command itself reports the agent.
	if pods, err := client.ListPods(ctx, t); err == nil && slices.ContainsFunc(pods, func(p v1.Pod) bool {
		return p.Name == args[0] && (namespace == "" || p.Namespace == namespace)
	}) {
		return args, nil
	}
	if (len(args) == 1 || t.ArgsBeforeDash == 1) && !slices.ContainsFunc([]string{"selector", "all", "all-pods", "filename"},
		flags.Changed) {
		return nil, command.Usage("%q is a kind, and the name of a pod is missing: islet %s POD\nThe pods of this node: islet pods",
			args[0], c.Name)
	}
	if t.ArgsBeforeDash > 0 {
		t.ArgsBeforeDash--
	}
	return args[1:], nil
}
