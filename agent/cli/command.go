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

// commands returns a new table of commands.
func commands() []command {
	return []command{
		{name: "status", summary: "show the state of the node", setup: setupStatus,
			detail: "Exits with 1 if something needs attention. Notes that need no action do not count."},
		{
			name: "pods", aliases: []string{"pod", "po", "ps", "ls", "list"}, args: "[POD...]",
			summary: "list pods", argsKind: takesPods, ownKinds: true, setup: setupPods,
		},
		{name: "describe", args: "[pod] POD...", summary: "show a pod in detail", argsKind: takesPods, setup: setupDescribe},
		{name: "logs", args: "POD [CONTAINER] | POD... | -l LABELS", summary: "print the logs of containers",
			argsKind: takesPods, setup: setupLogs,
			detail: "With several pods, each line begins with the pod and the container. On a terminal, control sequences of a " +
				"log other than colours are replaced."},
		{name: "exec", args: "POD -- COMMAND [ARG...]", summary: "run a command in a container", argsKind: takesPods, setup: setupExec,
			detail: "Returns the exit code of the command."},
		{name: "attach", args: "POD", summary: "connect to the process of a container", argsKind: takesPods, setup: setupAttach},
		{name: "debug", args: "POD --image=IMAGE [-- COMMAND [ARG...]]", summary: "add a container with another image to a running pod",
			argsKind: takesPods, setup: setupDebug,
			detail: "For a pod whose image has no shell. The container shares the pod's network, and with --target the processes of a " +
				"container.\nIt is an ephemeral container: it stays in the pod until the pod ends, and is not restarted. On a node of a " +
				"cluster, use kubectl debug.\nWith -i and without -t, the end of standard input is also the end of the container's input."},
		{
			name: "port-forward", aliases: []string{"forward"}, args: "POD [LOCAL:]REMOTE...",
			summary: "forward local ports to ports of a pod", argsKind: takesPods, setup: setupPortForward,
		},
		{name: "cp", args: "POD:PATH FILE | FILE POD:PATH", summary: "copy files from or to a container",
			argsKind: takesFiles, setup: setupCopy,
			detail: "Runs tar in the container, as kubectl cp does. If the container has none, the agent copies the files: then " +
				"the container's permissions do not apply, and new files belong to its user."},
		{name: "wait", args: "POD... | -l LABELS | --all", summary: "wait until pods are ready, are deleted, or have a value",
			argsKind: takesPods, setup: setupWait,
			detail: "With several pods, all of them must reach the state. Exits with 1 after the timeout, and when a pod has " +
				"ended that should become ready.\nEXPRESSION is a JSONPath of one value, such as {.status.phase}."},
		{name: "restart", args: "POD...", summary: "restart the containers of a pod",
			argsKind: takesPods, setup: setupRestart,
			detail: "preStop hooks run, and the processes get the pod's grace period. A container in crash back-off starts at once."},
		{
			name: "events", aliases: []string{"event"}, args: "[POD]",
			summary: "show the events of pods and the node", argsKind: takesPods, setup: setupEvents,
		},
		{
			name: "top", aliases: []string{"stats", "stat"}, args: "[pods|node|processes] [POD...]",
			summary: "show the resource usage of pods, of the node or of processes", argsKind: takesPods, ownKinds: true, setup: setupTop,
			detail: "processes shows the processes of a pod's containers: PID in the container and on the node, user on the node, " +
				"CPU usage in one second, resident memory, age and command.",
		},
		{name: "images", aliases: []string{"image"}, summary: "list, import, pull, prune and remove images", sub: []command{
			{name: "ls", aliases: []string{"list"}, summary: "list images", setup: setupImagesList},
			{
				name: "import", args: "ARCHIVE... | -",
				summary: "import image archives (OCI or docker, plain, gzip or zstd)", argsKind: takesFiles,
				setup: setupImagesImport,
			},
			{name: "pull", args: "IMAGE...", summary: "pull images from their registry", setup: setupImagesPull},
			{name: "prune", summary: "remove unused images, and show why the others are kept", setup: setupImagesPrune,
				detail: "An image is kept if a container uses it, if a pod on this node names it, even one that does " +
					"not run, or if the runtime pins it.\nThe garbage collection for a full disk has the same rules, " +
					"and also considers the age of an image.\nprune also removes data that belongs to no image: " +
					"interrupted downloads, and unreferenced layers and content."},
			{
				name: "rm", aliases: []string{"remove"}, args: "IMAGE...",
				summary: "remove names from images, and images that have no other name", argsKind: takesImages,
				setup: setupImagesRemove,
			},
		}},
		{name: "system", summary: "show the disk space that images, containers, logs and volumes use", sub: []command{
			{name: "df", summary: "show the disk usage of images, containers, logs and volumes", setup: setupSystemDF,
				detail: "SIZE of images is that of the disk; unused images may share layers with used ones, so less than RECLAIMABLE " +
					"may become free.\nContainers, logs and emptyDirs are those of running pods. The data of claims is only " +
					"removed by the command shown."},
		}},
		{name: "devices", aliases: []string{"device", "dev"},
			summary: "show the devices for containers, and the containers that use them", setup: setupDevices,
			detail: "Built-in devices are those of 'devices' in the EdgeConfiguration. Device plugins provide the " +
				"others.\n--all shows every device of this machine, with the properties that a match in the configuration can use."},
		{
			name: "apply", args: "-f FILE|DIR|-",
			summary: "create or change pods and their objects from manifests", argsKind: takesFiles,
			setup: setupApply,
		},
		{name: "check", args: "FILE|DIR|URL|-...", summary: "check manifests and configurations without a node",
			argsKind: takesFiles, setup: setupCheck,
			detail: "Needs no agent and no root. All files are checked as those of one node: fields, values, image references, " +
				"host ports that\ntwo pods have, missing ConfigMaps, Secrets and claims, templates that were not filled in. A file " +
				"may also have a\nKubeletConfiguration, an EdgeConfiguration or both. A dry run of 'islet apply' uses the same rules " +
				"and what a node knows.\n\nEach line is FILE:LINE: SEVERITY: MESSAGE. Exits with 1 if there is an error, and with " +
				"--strict also for a warning."},
		{name: "delete", args: "POD... | -f FILE|DIR|- | KIND NAME...",
			summary: "delete pods, ConfigMaps, Secrets and claims that were applied", argsKind: takesPods, setup: setupDelete,
			detail: "KIND is configmap, secret or pvc. The data of a claim remains in its directory, until it is " +
				"deleted with islet delete pvc NAME --delete-data."},
		{name: "objects", args: "[KIND [NAME...]]",
			summary: "list the ConfigMaps, Secrets and claims of this node's manifests", setup: setupObjects,
			detail: "KIND is configmap, secret or pvc. Values are never shown. 'islet describe KIND NAME' shows more."},
		{
			name: "config", aliases: []string{"configuration"},
			summary: "try a configuration on the node, which keeps it only if the trial succeeds",
			sub:     configCommands(),
		},
		{name: "update", args: "ARCHIVE|URL|--back", summary: "try another version of islet, and keep it if the node " +
			"works as well as before", argsKind: takesFiles, setup: setupUpdate,
			detail: "ARCHIVE.release must be next to the archive, signed with keys that the node trusts " +
				"(edge.update.keys). The pods keep running.\nIf the new version fails, the node returns to the running " +
				"version by itself within a minute. Exits with 1 if the version is rejected or fails.\n" +
				"The replaced program is kept next to the installed one: 'islet update --back' returns to it without a network."},
		{
			name:    "bundle",
			summary: "put all that a node should run into one signed file", sub: bundleCommands(),
		},
		{name: "self-test", hidden: true, setup: setupSelfTest},
		{name: "accept", summary: "end the held pods, which the API server has lost", setup: setupAccept,
			detail: "If the API server was restored from a backup or recreated, or the Node was deleted, the node " +
				"keeps running\nthe pods that the API server has lost. This command ends them: see 'islet status'."},
		{name: "takeover", summary: "give the name of the node to this machine, if another one had it", setup: setupTakeOver,
			detail: "A machine that uses the name of another one, such as after its disk was copied, sends nothing to " +
				"the API server\nand starts no pod that writes to shared volumes: see 'islet status'. Run this command " +
				"on the machine that keeps\nthe name, also after a board was replaced, or a network card of a machine " +
				"without a serial number."},
		{name: "shutdown", summary: "end all pods in order, as when the machine shuts down", setup: setupShutdown,
			detail: "Waits until they have ended, for at most shutdownGracePeriod. The node starts no pods until the " +
				"next boot,\nor until --cancel. Service managers without logind run this command."},
		{name: "clock", args: "[reset]", summary: "show the times that the node has recorded, or discard them",
			setup: setupClock,
			detail: "Certificates are verified at a time that is never before a time that has certainly passed. " +
				"Use reset if that time is wrong."},
		{name: "key", summary: "seal the key of the database to a TPM, and print the key for sealed Secrets", sub: keyCommands()},
		{name: "doctor", args: "[--all] [--output=json] [--fix] [--dry-run] [--migrate [--write=DIR]] [AGENT FLAG...]",
			summary: "check this host and show how to repair each finding", setup: setupDoctor, isAgent: true,
			detail: "Needs no agent. Without agent flags it uses the settings of the running agent, or else " +
				"those of the installed\nservice.\n--fix removes leftovers of another kubelet or k3s that are certainly unused, such as " +
				"its bridge cni0;\nwith --dry-run it only lists them.\n" +
				"--migrate prints, step by step, how islet takes this host over from a kubelet, k3s, podman or docker, and the way " +
				"back.\nIt changes nothing. --write=DIR also writes translated manifests and settings of registries into a new directory."},
		{name: "support", args: "FILE|-", summary: "write an archive for a report of a problem, without secrets", argsKind: takesFiles,
			setup: setupSupport,
			detail: "The archive has the status, the findings of doctor, versions, the end of the agent's log, the events and the " +
				"configuration.\nIt has no logs of pods. Secrets are replaced by REDACTED; redacted.txt lists how many of which kind.\n" +
				"Works without an agent too."},
		{name: "agent", args: "[FLAG...]", summary: "run the agent, as the service does", setup: setupAgent, isAgent: true,
			detail: "Flags without a command run the agent too: 'islet --pod-manifest-path=DIR' is " +
				"'islet agent --pod-manifest-path=DIR'.\n" +
				"/etc/islet/kubelet.yaml and /etc/islet/edge.yaml are read if they exist; --config and --edge-config replace them."},
		{name: "cleanup", args: "[AGENT FLAG...]",
			summary: "end all pods of a stopped agent, and remove their leftovers from the host", setup: setupCleanup, isAgent: true,
			detail: "The state directory is kept, so the pods return with the agent. Pass the flags that the agent is started with."},
		{name: "version", summary: "print the versions of this program and of the agent", setup: setupVersion},
		{name: "completion", args: "bash|zsh|fish", summary: "print shell completion", setup: setupCompletion, noAgent: true,
			detail: "For example: islet completion bash > /etc/bash_completion.d/islet"},
		{name: "man", args: "DIR", summary: "write the manual pages to a directory", argsKind: takesFiles, setup: setupMan, hidden: true},
		{name: "help", args: "[COMMAND]", summary: "show help", argsKind: takesCommands, setup: setupHelp, noAgent: true},
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
	flags.Lookup("socket").Hidden = c.noAgent
	return flags, run
}

func join(path []string) string { return strings.Join(path, " ") }

const podHelp = "POD is NAME, NAMESPACE/NAME, or the beginning of a name that only one pod has. As with kubectl, it may be\n" +
	"pod NAME or pod/NAME."

func (c *command) printUsage(w io.Writer, path []string, flags *pflag.FlagSet) {
	fmt.Fprintf(w, "%s%s.\n\nUsage:\n  islet %s", strings.ToUpper(c.summary[:1]), c.summary[1:], join(path))
	if flags.HasAvailableFlags() {
		fmt.Fprint(w, " [flags]")
	}
	if c.args != "" {
		fmt.Fprint(w, " "+c.args)
	}
	fmt.Fprintln(w)
	if c.argsKind == takesPods {
		fmt.Fprintf(w, "\n%s\n", podHelp)
	}
	if c.detail != "" {
		fmt.Fprintf(w, "\n%s\n", c.detail)
	}
	printExamples(w, path)
	if flags.HasAvailableFlags() {
		fmt.Fprintf(w, "\nFlags:\n%s", flags.FlagUsagesWrapped(100))
	}
}

func printCommands(w io.Writer, list []command, path []string) {
	name := join(append([]string{"islet"}, path...))
	fmt.Fprintf(w, "Usage:\n  %s COMMAND [flags]\n", name)
	if len(path) == 0 {
		fmt.Fprint(w, "  islet agent [FLAG...]    run the agent; 'islet --help-flags' shows its flags\n")
	}
	fmt.Fprint(w, "\nCommands:\n")
	t := table{indent: "  "}
	for _, c := range list {
		if !c.hidden {
			t.addRow(c.name, c.summary)
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
