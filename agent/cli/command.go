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
	args    string // for the usage line
	summary string
	detail  string // further help
	takes   argKind
	sub     []command
	hidden  bool
	agent   bool // its flags are the agent's own and are not parsed here
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

// commands returns the table of commands. It is created for each use, so nothing is shared.
func commands() []command {
	return []command{
		{name: "status", summary: "show how the node is", setup: setupStatus,
			detail: "Exits with 1 when something needs attention. What is worth knowing does not count."},
		{
			name: "pods", aliases: []string{"pod", "po", "ps", "ls", "list"}, args: "[POD...]",
			summary: "list pods", takes: takesPods, setup: setupPods,
		},
		{name: "describe", args: "[pod] POD...", summary: "show a pod in detail", takes: takesPods, setup: setupDescribe},
		{name: "logs", args: "POD [CONTAINER]", summary: "print the log of a container", takes: takesPods, setup: setupLogs},
		{name: "exec", args: "POD -- COMMAND [ARG...]", summary: "run a command in a container", takes: takesPods, setup: setupExec,
			detail: "Returns the exit code of the command."},
		{name: "attach", args: "POD", summary: "connect to the process of a container", takes: takesPods, setup: setupAttach},
		{
			name: "port-forward", aliases: []string{"forward"}, args: "POD [LOCAL:]REMOTE...",
			summary: "reach ports of a pod at local ones", takes: takesPods, setup: setupPortForward,
		},
		{name: "cp", args: "POD:PATH FILE | FILE POD:PATH", summary: "copy files from or to a container",
			takes: takesFiles, setup: setupCopy,
			detail: "Needs tar in the container, as kubectl cp does."},
		{name: "restart", args: "POD...", summary: "end the containers of a pod and start them again",
			takes: takesPods, setup: setupRestart,
			detail: "preStop hooks run, and the processes get the pod's grace period. A container in crash back-off starts at once."},
		{
			name: "events", aliases: []string{"event"}, args: "[POD]",
			summary: "show what happened to pods and the node", takes: takesPods, setup: setupEvents,
		},
		{
			name: "top", aliases: []string{"stats", "stat"}, args: "[pods|node] [POD...]",
			summary: "show what pods or the node use", takes: takesPods, setup: setupTop,
		},
		{name: "images", aliases: []string{"image"}, summary: "list, import, pull, prune and remove images", sub: []command{
			{name: "ls", aliases: []string{"list"}, summary: "list images", setup: setupImagesList},
			{
				name: "import", args: "ARCHIVE... | -",
				summary: "import image archives (OCI or docker, plain, gzip or zstd)", takes: takesFiles,
				setup: setupImagesImport,
			},
			{name: "pull", args: "IMAGE...", summary: "pull images from their registry", setup: setupImagesPull},
			{name: "prune", summary: "remove the images that nothing needs, and say why the others stay", setup: setupImagesPrune,
				detail: "An image stays that a container has, that any pod on this node names, whether it runs " +
					"or not, or that the runtime pins.\nThe rules are those by which a disk that is too full is " +
					"cleared up, but here the age of an image does not count.\nWhat belongs to no image " +
					"goes too: downloads that stopped, and layers and content that nothing refers to."},
			{
				name: "rm", aliases: []string{"remove"}, args: "IMAGE...",
				summary: "take names from images, and remove those without any", takes: takesImages,
				setup: setupImagesRemove,
			},
		}},
		{name: "devices", aliases: []string{"device", "dev"},
			summary: "show which devices containers can have, and who has them", setup: setupDevices,
			detail: "Built-in devices are those of 'devices' in the EdgeConfiguration; the others are of device " +
				"plugins.\n--all shows what a match in the configuration can name of every device of this machine."},
		{
			name: "apply", args: "-f FILE|DIR|-",
			summary: "create or change pods and what they use from manifests", takes: takesFiles,
			setup: setupApply,
		},
		{name: "delete", args: "POD... | -f FILE|DIR|- | KIND NAME...",
			summary: "delete pods, ConfigMaps, Secrets and claims that were applied", takes: takesPods, setup: setupDelete,
			detail: "KIND is configmap, secret or pvc. The data of a claim stays, in its directory, until islet " +
				"delete pvc NAME --delete-data."},
		{name: "objects", args: "[KIND [NAME...]]",
			summary: "list the ConfigMaps, Secrets and claims that manifests of this node hold", setup: setupObjects,
			detail: "KIND is configmap, secret or pvc. Values are never shown. 'islet describe KIND NAME' shows more."},
		{
			name: "config", aliases: []string{"configuration"},
			summary: "send the node a configuration, which it tries and keeps only if that goes well",
			sub:     configCommands(),
		},
		{name: "update", args: "ARCHIVE|URL", summary: "try another version of islet, and keep it if the node " +
			"is then as well as before", takes: takesFiles, setup: setupUpdate,
			detail: "The archive is one whose makers the node trusts (edge.update.keys); ARCHIVE.release lies " +
				"beside it. The pods go on running.\nWhatever goes wrong, the version that runs now goes on by " +
				"itself, at most a minute later. Exits with 1 when it is refused or fails."},
		{name: "self-test", hidden: true, setup: setupSelfTest},
		{name: "accept", summary: "end the pods that are held because the API server lost them", setup: setupAccept,
			detail: "After a restore from a backup, in a cluster that was made anew, or when the Node was " +
				"deleted, the\npods run on until this command says that the API server is right: see 'islet status'."},
		{name: "takeover", summary: "give the name of the node to this machine, when another one had it", setup: setupTakeOver,
			detail: "A machine with a copied disk, or with the name of another one, tells the API server " +
				"nothing and starts no pod that\nwrites to shared volumes: see 'islet status'. After a board " +
				"or, without a serial number, a network card was replaced,\nthis command says that this machine is the node."},
		{name: "shutdown", summary: "end all pods in order, as when the machine goes off", setup: setupShutdown,
			detail: "Waits until they have ended, or had the time that shutdownGracePeriod gives them. The node " +
				"takes no pods\nuntil the next boot, which starts them again, or until --cancel. Service managers without logind call it."},
		{name: "clock", args: "[reset]", summary: "show what the node knows of the time, or forget what it took for proven",
			setup:  setupClock,
			detail: "Certificates are judged by a time that never goes back behind what has certainly passed. Reset when that is wrong."},
		{name: "doctor", args: "[--all] [--output=json] [--fix] [--dry-run] [AGENT FLAG...]",
			summary: "check this host and say what to do about each finding", setup: setupDoctor, agent: true,
			detail: "Needs no agent. Without flags it examines the host for the agent that runs, else for the " +
				"flags that are given.\n--fix removes what another kubelet or k3s left and certainly nobody " +
				"uses, such as its bridge cni0;\nwith --dry-run it only says what that is."},
		{name: "agent", args: "[FLAG...]", summary: "run the agent: what the service does", setup: setupAgent, agent: true,
			detail: "Flags before any command run it too: 'islet --pod-manifest-path=DIR' is 'islet agent --pod-manifest-path=DIR'."},
		{name: "cleanup", args: "[AGENT FLAG...]",
			summary: "end all pods of an agent that is stopped, and remove what they left on the host", setup: setupCleanup, agent: true,
			detail: "The state directory stays: the pods come back with the agent. Give it the flags that the agent is started with."},
		{name: "version", summary: "print the versions of this program and of the agent", setup: setupVersion},
		{name: "completion", args: "bash|zsh|fish", summary: "print shell completion", setup: setupCompletion,
			detail: "For example: islet completion bash > /etc/bash_completion.d/islet"},
		{name: "man", args: "DIR", summary: "write the manual pages to a directory", takes: takesFiles, setup: setupMan, hidden: true},
		{name: "help", args: "[COMMAND]", summary: "show help", takes: takesCommands, setup: setupHelp},
		{name: "get", hidden: true, sub: getCommands()},
		{name: "__complete", hidden: true, setup: setupComplete},
	}
}

// lookup finds a command by its name or alias.
func lookup(list []command, name string) *command {
	i := slices.IndexFunc(list, func(c command) bool { return c.name == name || slices.Contains(c.aliases, name) })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// parse returns the command's flags, including the common ones.
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

const podHelp = "POD is NAME, NAMESPACE/NAME or the beginning of a name, if only one pod has it."

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
		fmt.Fprintf(w, "\n%s\n", podHelp)
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
		fmt.Fprint(w, "  islet agent [FLAG...]    run the agent; its flags: 'islet --help-flags'\n")
	}
	fmt.Fprint(w, "\nCommands:\n")
	t := table{indent: "  "}
	for _, c := range list {
		if !c.hidden {
			t.row(c.name, c.summary)
		}
	}
	t.print(w)
	fmt.Fprintf(w, "\n'%s COMMAND --help' shows more.\n", name)
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

// didYouMean suggests the most similar command.
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

// distance returns the number of letters to add, drop, change or swap.
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
