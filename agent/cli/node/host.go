package node

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/printable"
)

// The commands in this file do not need a running agent. Package agent implements them.

// Doctor sets up islet doctor.
func Doctor(t *command.Tool, _ *pflag.FlagSet) command.Runner {
	run := onHost(t, t.Doctor)
	return func(ctx context.Context, args []string) error {
		if socket := cmp.Or(t.Socket, t.Getenv("ISLET_SOCKET")); socket != "" {
			args = append([]string{"--socket=" + socket}, args...)
		}
		return run(ctx, args)
	}
}

// Cleanup sets up islet cleanup.
func Cleanup(t *command.Tool, _ *pflag.FlagSet) command.Runner { return onHost(t, t.Cleanup) }

// SetUp returns the function that runs islet setup.
func SetUp(t *command.Tool, _ *pflag.FlagSet) command.Runner {
	return func(_ context.Context, args []string) error {
		return command.OnHost(t.SetUp != nil, func() int { return t.SetUp(args, t.Stdout, t.Stderr) })
	}
}

// KeyCommands are the commands for the key of the database. Their flags are not parsed here, because the flags of the agent follow them.
func KeyCommands() []command.Command {
	run := func(verb string) func(*command.Tool, *pflag.FlagSet) command.Runner {
		return func(t *command.Tool, _ *pflag.FlagSet) command.Runner {
			return func(_ context.Context, args []string) error { return runKey(t, verb, args) }
		}
	}
	return []command.Command{
		{Name: "recipient", Args: "[AGENT FLAG...]", Summary: "print this node's public key, for islet bundle seal",
			Setup: setupKeyRecipient, IsAgent: true,
			Detail: "The private key for sealed Secrets is derived from the key of the database (store.key). If there is no store.key, " +
				"it is created.\nThe public key stays the same when store.key is sealed or unsealed. Without agent flags, the command " +
				"asks the running agent."},
		{Name: "status", Args: "[AGENT FLAG...]", Summary: "show whether the key is sealed, and whether it opens",
			Setup: run("status"), IsAgent: true, Detail: "Exits with 1 if the key does not open, or if a plain copy of it is left."},
		{Name: "seal", Args: "[--pcrs=LIST] [--policy-key=FILE] [--recovery] [AGENT FLAG...]",
			Summary: "seal the key to the TPM, and show a recovery key once", Setup: run("seal"), IsAgent: true,
			Detail: "Afterwards only this TPM, or the recovery key, opens the key. The agent needs no restart. A power cut at " +
				"any time leaves a\nkey that opens. Repeat the command for other PCRs or a new recovery key.\n" +
				"--pcrs=7,11 also requires the present values of these PCRs, which a new firmware or boot loader may change.\n" +
				"--policy-key=FILE is a public key in PEM, ECDSA P-256: its owner signs the values that open the key.\n" +
				"--recovery opens a key that is already sealed with its recovery key, if the TPM does not open it."},
		{Name: "unseal", Args: "[--recovery] [AGENT FLAG...]", Summary: "make the key a plain file again",
			Setup: run("unseal"), IsAgent: true,
			Detail: "The TPM opens the key. --recovery asks for the recovery key, or reads it from the standard input: after the TPM " +
				"was\nreplaced or reset, or on another machine."},
	}
}

// runKey runs a command for the key of the database.
func runKey(t *command.Tool, verb string, args []string) error {
	return command.OnHost(t.Key != nil, func() int { return t.Key(append([]string{verb}, args...), t.Stdin, t.Stdout, t.Stderr) })
}

// setupKeyRecipient sets up islet key recipient. The command asks the running agent, because only the agent's memory may have the key.
func setupKeyRecipient(t *command.Tool, _ *pflag.FlagSet) command.Runner {
	return func(ctx context.Context, args []string) error {
		if len(args) > 0 {
			return runKey(t, "recipient", args)
		}
		named := cmp.Or(t.Socket, t.Getenv("ISLET_SOCKET"))
		t.Socket = cmp.Or(named, api.DefaultSocket)
		recipient, err := findRecipient(ctx, t, named != "")
		if err == nil && recipient != "" {
			_, err = fmt.Fprintln(t.Out, printable.Line(recipient))
		}
		return err
	}
}

// findRecipient asks the agent for the node's public key. If no agent runs, or an earlier version of it, a command that reads the key
// itself prints it, and the result is empty. That command reads the key of the default directories, so it does not run if the user named
// the socket: the agent of that socket may have other directories, and the Secrets would be sealed for another node.
func findRecipient(ctx context.Context, t *command.Tool, isNamed bool) (string, error) {
	recipient, err := MakeRecipient(ctx, t)
	code := command.CodeOf(err)
	switch {
	case code != command.ExitUnreachable && code != command.ExitNotFound, errors.Is(err, fs.ErrPermission):
		return recipient, err
	case isNamed && code == command.ExitNotFound:
		err = errors.New("it is an earlier version")
	case !isNamed:
		return "", runKey(t, "recipient", nil)
	}
	return "", command.ExitWith(code, fmt.Errorf("the agent at %s cannot tell its key, so give the flags that it is started with: "+
		"islet key recipient AGENT FLAG...: %w", t.Socket, err))

}

// MakeRecipient asks the agent for the node's public key for sealed Secrets. The agent makes the key if there is none.
func MakeRecipient(ctx context.Context, t *command.Tool) (string, error) {
	var answer api.Recipient
	err := client.Call(ctx, t, http.MethodPost, api.PathRecipient, nil, nil, &answer)
	return answer.Recipient, err
}

// Agent is only used for --help, because the agent parses its own arguments.
func Agent(t *command.Tool, _ *pflag.FlagSet) command.Runner {
	return func(context.Context, []string) error { return command.OnHost(false, nil) }
}

func onHost(t *command.Tool, do func(ctx context.Context, args []string, stdout, stderr io.Writer) int) command.Runner {
	return func(ctx context.Context, args []string) error {
		out := t.Out
		if terminal.InColour(t, out) && !slices.ContainsFunc(args, func(a string) bool { return strings.Contains(a, "json") }) {
			out = &severityWriter{w: out}
		}
		return command.OnHost(do != nil, func() int { return do(ctx, args, out, t.Stderr) })
	}
}

// A severityWriter colours the severity in each line of doctor's output. The severity is the first
// word of the line.
type severityWriter struct {
	w              io.Writer
	unfinishedLine []byte
}

func (s *severityWriter) Write(b []byte) (int, error) {
	s.unfinishedLine = append(s.unfinishedLine, b...)
	var out []byte
	for {
		line, rest, whole := bytes.Cut(s.unfinishedLine, []byte("\n"))
		if !whole {
			break
		}
		s.unfinishedLine = rest
		word, text, _ := strings.Cut(string(line), " ")
		if c := map[string]terminal.Colour{"error": terminal.Red, "warning": terminal.Yellow,
			"ok": terminal.Green}[word]; c != terminal.Plain {
			word = string(c) + word + terminal.EndColour
		}
		if text != "" {
			word += " " + text
		}
		out = append(append(out, word...), '\n')
	}
	if len(out) > 0 {
		if _, err := s.w.Write(out); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}
