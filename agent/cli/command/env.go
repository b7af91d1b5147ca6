package command

import (
	"context"
	"io"
	"net/url"
	"time"

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
	// ServiceFlags returns the flags that the service passes to the agent. It returns false if there is no such service.
	ServiceFlags func() ([]string, bool)
	// PlannedFlags is like ServiceFlags, also for a service that is not installed yet. It returns false if no file sets its flags.
	PlannedFlags func() ([]string, bool)
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
	// Backup runs islet backup or islet restore, which is the verb.
	Backup func(ctx context.Context, verb string, args []string, t *Tool, ask AskBackup) int
	// Key seals the key of the database to a TPM, unseals it, or shows its state.
	Key func(args []string, stdin io.Reader, stdout, stderr io.Writer) int
	// SetUp applies the file of a boot partition to this machine.
	SetUp func(args []string, stdout, stderr io.Writer) int
}

// AskBackup returns the archive of the agent at a socket. The result silent is true if no agent answers.
type AskBackup = func(socket string, query url.Values) (archive io.ReadCloser, silent bool, err error)

// A Tool is one run of a command.
type Tool struct {
	Env
	Out            io.Writer
	Socket         string
	ArgsBeforeDash int // number of arguments before "--"; -1 if there is no "--"
}
