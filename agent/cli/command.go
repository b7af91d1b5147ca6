package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// A command is one row of the table.
type command struct {
	name    string
	aliases []string
	args    string // as in the usage line
	summary string
	detail  string // more for its own help
	takes   argKind
	sub     []command
	hidden  bool
	agent   bool // its flags are the agent's own: they are not parsed here
	// setup declares the flags and returns what to run once they are parsed.
	setup func(t *tool, flags *pflag.FlagSet) runner
}

type runner func(ctx context.Context, args []string) error

// argKind says what completes a command's arguments.
type argKind int

const (
	takesNothing argKind = iota
	takesPods
	takesImages
	takesFiles
	takesCommands
)

// commands is the table. It is made anew for each use, so that nothing is shared.
func commands() []command {
	return []command{
		{name: "status", summary: "show how the node is", setup: setupStatus,
			detail: "Exits with 1 when something needs attention."},
		{name: "pods", aliases: []string{"pod", "ps"}, args: "[POD...]", summary: "list pods", takes: takesPods, setup: setupPods},
		{name: "describe", args: "[pod] POD...", summary: "show a pod in detail", takes: takesPods, setup: setupDescribe},
		{name: "logs", args: "POD [CONTAINER]", summary: "print the log of a container", takes: takesPods, setup: setupLogs},
		{name: "exec", args: "POD -- COMMAND [ARG...]", summary: "run a command in a container", takes: takesPods, setup: setupExec,
			detail: "Returns the exit code of the command."},
		{name: "attach", args: "POD", summary: "connect to the process of a container", takes: takesPods, setup: setupAttach},
		{name: "top", args: "[pods|node] [POD...]", summary: "show what pods or the node use", takes: takesPods, setup: setupTop},
		{name: "images", aliases: []string{"image"}, summary: "list, import, pull and remove images", sub: []command{
			{name: "ls", aliases: []string{"list"}, summary: "list images", setup: setupImagesList},
			{name: "import", args: "ARCHIVE... | -", summary: "import image archives (OCI or docker, plain, gzip or zstd)", takes: takesFiles, setup: setupImagesImport},
			{name: "pull", args: "IMAGE...", summary: "pull images from their registry", setup: setupImagesPull},
			{name: "rm", aliases: []string{"remove"}, args: "IMAGE...", summary: "remove images", takes: takesImages, setup: setupImagesRemove},
		}},
		{name: "apply", args: "-f FILE|DIR|-", summary: "create or change pods from manifests", takes: takesFiles, setup: setupApply},
		{name: "delete", args: "POD... | -f FILE|DIR|-", summary: "delete pods that were applied", takes: takesPods, setup: setupDelete},
		{name: "doctor", args: "[--all] [--output=json] [AGENT FLAG...]", summary: "check this host and say what to do about each finding", setup: setupDoctor, agent: true,
			detail: "Needs no agent. Give it the flags that the agent is started with."},
		{name: "cleanup", args: "[AGENT FLAG...]", summary: "end all pods of an agent that is stopped, and remove what they left on the host", setup: setupCleanup, agent: true,
			detail: "The state directory stays: the pods come back with the agent. Give it the flags that the agent is started with."},
		{name: "version", summary: "print the versions of this program and of the agent", setup: setupVersion},
		{name: "completion", args: "bash|zsh|fish", summary: "print shell completion", setup: setupCompletion,
			detail: "For example: islet completion bash > /etc/bash_completion.d/islet"},
		{name: "help", args: "[COMMAND]", summary: "show help", takes: takesCommands, setup: setupHelp},
		{name: "__complete", hidden: true, setup: setupComplete},
	}
}

// lookup finds a command by its name or another name it has.
func lookup(list []command, name string) *command {
	i := slices.IndexFunc(list, func(c command) bool { return c.name == name || slices.Contains(c.aliases, name) })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// parse returns the command's flags, with those that every command has.
func (c *command) parse(t *tool) (*pflag.FlagSet, runner) {
	flags := pflag.NewFlagSet(c.name, pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	flags.SortFlags = false
	run := c.setup(t, flags)
	if c.hidden {
		flags.ParseErrorsWhitelist.UnknownFlags = true
	}
	flags.StringVar(&t.socket, "socket", cmp.Or(t.socket, t.Getenv("ISLET_SOCKET")), "the agent's unix socket; also $ISLET_SOCKET")
	return flags, run
}

func join(path []string) string { return strings.Join(path, " ") }

func (c *command) printUsage(w io.Writer, path []string, flags *pflag.FlagSet) {
	fmt.Fprintf(w, "%s%s.\n\nUsage:\n  islet %s", strings.ToUpper(c.summary[:1]), c.summary[1:], join(path))
	if flags.HasFlags() {
		fmt.Fprint(w, " [flags]")
	}
	if c.args != "" {
		fmt.Fprint(w, " "+c.args)
	}
	fmt.Fprintln(w)
	if c.takes == takesPods {
		fmt.Fprint(w, "\nPOD is NAME, NAMESPACE/NAME or the beginning of a name, if only one pod has it.\n")
	}
	if c.detail != "" {
		fmt.Fprintf(w, "\n%s\n", c.detail)
	}
	fmt.Fprintf(w, "\nFlags:\n%s", flags.FlagUsagesWrapped(100))
}

func printCommands(w io.Writer, list []command, path []string) {
	name := join(append([]string{"islet"}, path...))
	fmt.Fprintf(w, "Usage:\n  %s COMMAND [flags]\n", name)
	if len(path) == 0 {
		fmt.Fprint(w, "  islet [flags]            run the agent: see 'islet --help'\n")
	}
	fmt.Fprint(w, "\nCommands:\n")
	t := table{indent: "  "}
	for _, c := range list {
		if !c.hidden {
			t.row(c.name, c.summary)
		}
	}
	t.print(w)
	fmt.Fprintf(w, "\n'%s COMMAND --help' tells more.\n", name)
	if len(path) == 0 {
		fmt.Fprint(w, `
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 agent not reachable, 4 not found;
exec: the code of the command.
`)
	}
}

func setupHelp(t *tool, _ *pflag.FlagSet) runner {
	return func(ctx context.Context, args []string) error {
		return dispatch(ctx, commands(), nil, append(args, "--help"), t)
	}
}

// didYouMean suggests the nearest command.
func didYouMean(name string, list []command) string {
	best, least := "", 3
	for _, c := range list {
		if d := distance(name, c.name); d < least && !c.hidden {
			best, least = c.name, d
		}
		if strings.HasPrefix(c.name, name) && name != "" {
			best, least = c.name, 0
		}
	}
	if best == "" {
		return ": see 'islet help'"
	}
	return fmt.Sprintf(": did you mean %q?", best)
}

// distance is how many letters must be added, dropped, changed or swapped.
func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
