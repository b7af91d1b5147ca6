package backups

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/islet-edge/islet/edge/backup"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/hostcommand"
	"github.com/islet-edge/islet/internal/printable"
)

// An Env contains the standard files of the commands, and functions of other packages.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Version        string // of islet
	Socket         string // of the agent; empty for the socket in the run directory
	Now            func() time.Time
	// Ask returns the archive of the agent at a socket. The result silent is true if no agent answers.
	Ask func(socket string, query url.Values) (archive io.ReadCloser, silent bool, err error)
	// Load returns the configuration of an agent that is started with the given flags.
	Load func(args []string) (*config.Config, []config.Notice, error)
	// ServiceFlags returns the flags with which the service of a host starts the agent. It returns false if there is no such service.
	ServiceFlags func(host fs.FS) ([]string, bool)
	// StartCommand returns the command line that starts the installed service. It is empty if there is no such service.
	StartCommand func() string
	// Step is called after each step of a restore. Tests end the process there. It may be nil.
	Step func(step string) error
}

// Main runs islet backup or islet restore. The flags of the agent follow the flags of the command. Main returns the exit code: 1 for a
// failure, and 2 for wrong arguments.
func Main(ctx context.Context, verb string, args []string, env Env) int {
	o, err := parse(verb, args)
	switch {
	case err != nil:
	case o.newKey != "":
		err = env.makeKey(o.newKey)
	case verb == "restore":
		err = env.restore(ctx, o)
	case o.verify:
		err = env.verify(ctx, o)
	default:
		err = env.backup(ctx, o)
	}
	return hostcommand.Report(env.Stderr, verb, err)
}

// options is a parsed command line.
type options struct {
	file                    string
	to, include             []string
	key, newKey, tpm        string
	bundles, verify, dryRun bool
	setAside, recovery      bool
	quiet                   bool
	highest                 map[string]int64
	agent                   []string // the flags of the agent
	own                     hostcommand.Flags
	usage                   string
}

func newOptions(verb string) *options {
	o := &options{highest: map[string]int64{}}
	o.own.Text("--key", &o.key)
	o.own.Value("--include", func(s string) error {
		abs, err := filepath.Abs(s)
		o.include = append(o.include, abs)
		return err
	})
	o.own.Switch("--quiet", &o.quiet)
	o.own.Switch("-q", &o.quiet)
	if verb == "restore" {
		o.usage = "islet restore FILE --key=FILE"
		o.own.Value("--bundle-number", o.addNumber)
		o.own.Text("--tpm", &o.tpm)
		o.own.Switch("--dry-run", &o.dryRun)
		o.own.Switch("--set-aside", &o.setAside)
		o.own.Switch("--recovery", &o.recovery)
		return o
	}
	o.usage = "islet backup FILE --to=KEY"
	o.own.Value("--to", func(s string) error { o.to = append(o.to, s); return nil })
	o.own.Text("--new-key", &o.newKey)
	o.own.Switch("--verify", &o.verify)
	o.own.Switch("--bundles", &o.bundles)
	return o
}

// addNumber parses NAME=NUMBER.
func (o *options) addNumber(s string) error {
	name, text, _ := strings.Cut(s, "=")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || name == "" || n < 1 {
		return fmt.Errorf("--bundle-number: %q is not NAME=NUMBER, such as kiosk=42", s)
	}
	o.highest[name] = n
	return nil
}

// parse parses the arguments of a command. Every error is a wrong usage.
func parse(verb string, args []string) (*options, error) {
	o := newOptions(verb)
	rest, err := o.own.Take(args)
	if err != nil {
		return nil, err
	}
	for _, arg := range rest {
		switch {
		case strings.HasPrefix(arg, "-") && arg != "-":
			o.agent = append(o.agent, arg)
		case o.file != "":
			return nil, hostcommand.Usage(fmt.Errorf(
				"unexpected argument %q: give one file, and write flags of the agent as --flag=VALUE", arg))
		default:
			o.file = arg
		}
	}
	if err := o.check(verb); err != nil {
		return nil, hostcommand.Usage(err)
	}
	return o, nil
}

// fileOr returns the path of the backup for a message. If the path is -, it returns the given name of the stream.
func (o *options) fileOr(stream string) string {
	if o.file == "-" {
		return stream
	}
	return o.file
}

func (o *options) check(verb string) error {
	opens := verb == "restore" || o.verify
	switch {
	case o.newKey != "":
		if o.file != "" {
			return errors.New("--new-key makes no backup: give it alone")
		}
	case o.file == "":
		return fmt.Errorf("no file: %s", o.usage)
	case opens && o.key == "":
		return errors.New("give the private key of the backup (--key=FILE)")
	case o.recovery && o.file == "-":
		return errors.New("--recovery reads the standard input, so the backup must be a file")
	case opens && len(o.to) > 0:
		return errors.New("--verify and --to do not fit together")
	case !opens && o.key != "":
		return errors.New("--key is for --verify; --to=KEY names the public key to which the backup is sealed")
	case !opens && len(o.to) == 0:
		return errors.New("give the public key that the backup is sealed to (--to=age1...): islet backup --new-key=FILE makes one")
	}
	return nil
}

// agentFlags returns the flags of the command line, or else the flags of the installed service.
func (env Env) agentFlags(o *options) []string {
	if len(o.agent) > 0 || env.ServiceFlags == nil {
		return o.agent
	}
	flags, _ := env.ServiceFlags(os.DirFS("/"))
	return flags
}

// starts returns the agents that may be started on a board with the given files: the agent of the service, and an agent with the flags of
// the command line. If there are both, it does not return an error about the flags of the service, because the other agent is enough.
func (env Env) starts(o *options, board fs.FS) (list []backup.Identity, _ error) {
	var listed []byte
	file, err := board.Open(strings.TrimPrefix(filepath.Join(config.DefaultDir, config.FlagsFile), "/"))
	if err == nil {
		listed, err = io.ReadAll(io.LimitReader(file, config.MaxFlagsFile+1))
		file.Close()
	}
	if len(listed) > config.MaxFlagsFile {
		err = fmt.Errorf("%s has more than %d bytes", config.FlagsFile, config.MaxFlagsFile)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	add := func(flags []string) error {
		dirs, node, err := config.LocateWith(flags, listed)
		if err == nil {
			list = append(list, backup.Identity{Dirs: dirs, Node: node})
		}
		return err
	}
	flags, isInstalled := []string(nil), false
	if env.ServiceFlags != nil {
		flags, isInstalled = env.ServiceFlags(board)
	}
	if isInstalled || len(o.agent) == 0 {
		err = add(flags)
	}
	if len(o.agent) > 0 {
		err = add(o.agent)
	}
	return list, err
}

// describeNumbers returns the highest numbers of bundles in words.
func describeNumbers(bundles map[string]int64) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(bundles)) {
		list = append(list, fmt.Sprintf("%s number %d", printable.Cut(name, 80), bundles[name]))
	}
	return strings.Join(list, ", ")
}
