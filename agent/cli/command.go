package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/islet-edge/islet/agent/cli/bundle"
	"github.com/islet-edge/islet/agent/cli/change"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/images"
	"github.com/islet-edge/islet/agent/cli/join"
	"github.com/islet-edge/islet/agent/cli/logs"
	"github.com/islet-edge/islet/agent/cli/node"
	"github.com/islet-edge/islet/agent/cli/node/support"
	"github.com/islet-edge/islet/agent/cli/node/top"
	"github.com/islet-edge/islet/agent/cli/objects"
	"github.com/islet-edge/islet/agent/cli/pods"
	"github.com/islet-edge/islet/agent/cli/session"
	"github.com/islet-edge/islet/agent/cli/terminal"
)

// commands returns a new table of commands.
func commands() []command.Command {
	return []command.Command{
		{Name: "status", Summary: "show the state of the node", Setup: node.Status,
			Detail: "Exits with 1 if something needs attention. Notes that need no action do not count."},
		{
			Name: "pods", Aliases: []string{"pod", "po", "ps", "ls", "list"}, Args: "[POD...]",
			Summary: "list pods", ArgsKind: command.TakesPods, OwnKinds: true, Setup: pods.List,
		},
		{Name: "describe", Args: "[pod] POD...", Summary: "show a pod in detail", ArgsKind: command.TakesPods, Setup: pods.Describe},
		{Name: "logs", Args: "POD [CONTAINER] | POD... | -l LABELS", Summary: "print the logs of containers",
			ArgsKind: command.TakesPods, Setup: logs.Print,
			Detail: "With several pods, each line begins with the pod and the container. On a terminal, control sequences of a " +
				"log other than colours are replaced."},
		{Name: "exec", Args: "POD -- COMMAND [ARG...]", Summary: "run a command in a container", ArgsKind: command.TakesPods,
			Setup: session.Exec, Detail: "Returns the exit code of the command."},
		{Name: "attach", Args: "POD", Summary: "connect to the process of a container", ArgsKind: command.TakesPods, Setup: session.Attach},
		{Name: "debug", Args: "POD --image=IMAGE [-- COMMAND [ARG...]]", Summary: "add a container with another image to a running pod",
			ArgsKind: command.TakesPods, Setup: session.Debug,
			Detail: "For a pod whose image has no shell. The container shares the pod's network, and with --target the processes of a " +
				"container.\nIt is an ephemeral container: it stays in the pod until the pod ends, and is not restarted. On a node of a " +
				"cluster, use kubectl debug.\nWith -i and without -t, the end of standard input is also the end of the container's input."},
		{
			Name: "port-forward", Aliases: []string{"forward"}, Args: "POD [LOCAL:]REMOTE...",
			Summary: "forward local ports to ports of a pod", ArgsKind: command.TakesPods, Setup: session.PortForward,
		},
		{Name: "cp", Args: "POD:PATH FILE | FILE POD:PATH", Summary: "copy files from or to a container",
			ArgsKind: command.TakesFiles, Setup: session.Copy,
			Detail: "Runs tar in the container, as kubectl cp does. If the container has none, the agent copies the files: then " +
				"the container's permissions do not apply, and new files belong to its user."},
		{Name: "wait", Args: "POD... | -l LABELS | --all", Summary: "wait until pods are ready, are deleted, or have a value",
			ArgsKind: command.TakesPods, Setup: pods.Wait,
			Detail: "With several pods, all of them must reach the state. Exits with 1 after the timeout, and when a pod has " +
				"ended that should become ready.\nEXPRESSION is a JSONPath of one value, such as {.status.phase}."},
		{Name: "restart", Args: "POD...", Summary: "restart the containers of a pod",
			ArgsKind: command.TakesPods, Setup: pods.Restart,
			Detail: "preStop hooks run, and the processes get the pod's grace period. A container in crash back-off starts at once."},
		{
			Name: "events", Aliases: []string{"event"}, Args: "[POD]",
			Summary: "show the events of pods and the node", ArgsKind: command.TakesPods, Setup: pods.Events,
		},
		{
			Name: "top", Aliases: []string{"stats", "stat"}, Args: "[pods|node|processes] [POD...]",
			Summary: "show the resource usage of pods, of the node or of processes", ArgsKind: command.TakesPods, OwnKinds: true,
			Setup: top.Show,
			Detail: "processes shows the processes of a pod's containers: PID in the container and on the node, user on the node, " +
				"CPU usage in one second, resident memory, age and command.",
		},
		{Name: "images", Aliases: []string{"image"}, Summary: "list, import, pull, prune and remove images", Sub: []command.Command{
			{Name: "ls", Aliases: []string{"list"}, Summary: "list images", Setup: images.List},
			{
				Name: "import", Args: "ARCHIVE... | -",
				Summary: "import image archives (OCI or docker, plain, gzip or zstd)", ArgsKind: command.TakesFiles,
				Setup: images.Import,
			},
			{Name: "pull", Args: "IMAGE...", Summary: "pull images from their registry", Setup: images.Pull},
			{Name: "prune", Summary: "remove unused images, and show why the others are kept", Setup: images.Prune,
				Detail: "An image is kept if a container uses it, if a pod on this node names it, even one that does " +
					"not run, or if the runtime pins it.\nThe garbage collection for a full disk has the same rules, " +
					"and also considers the age of an image.\nprune also removes data that belongs to no image: " +
					"interrupted downloads, and unreferenced layers and content."},
			{
				Name: "rm", Aliases: []string{"remove"}, Args: "IMAGE...",
				Summary: "remove names from images, and images that have no other name", ArgsKind: command.TakesImages,
				Setup: images.Remove,
			},
		}},
		{Name: "system", Summary: "show the disk space that images, containers, logs and volumes use", Sub: []command.Command{
			{Name: "df", Summary: "show the disk usage of images, containers, logs and volumes", Setup: images.DiskUsage,
				Detail: "SIZE of images is their size on the disk; unused images may share layers with used ones, so less than " +
					"RECLAIMABLE may become free.\nContainers, logs and emptyDirs belong to running pods. The data of claims is only " +
					"removed by the command shown."},
		}},
		{Name: "devices", Aliases: []string{"device", "dev"},
			Summary: "show the devices for containers, and the containers that use them", Setup: node.Devices,
			Detail: "Built-in devices are configured in 'devices' of the EdgeConfiguration. Device plugins provide the " +
				"others.\n--all shows every device of this machine, with the properties that a match in the configuration can use."},
		{
			Name: "apply", Args: "-f FILE|DIR|-",
			Summary: "create or change pods and their objects from manifests", ArgsKind: command.TakesFiles,
			Setup: objects.Apply,
		},
		{Name: "check", Args: "FILE|DIR|URL|-...", Summary: "check manifests and configurations without a node",
			ArgsKind: command.TakesFiles, Setup: objects.Check,
			Detail: "Needs no agent and no root. All files are checked as the files of one node: fields, values, image references, " +
				"host ports that\ntwo pods have, missing ConfigMaps, Secrets and claims, templates that were not filled in. A file " +
				"may also have a\nKubeletConfiguration, an EdgeConfiguration or both. A dry run of 'islet apply' uses the same rules " +
				"and what a node knows.\n\nEach line is FILE:LINE: SEVERITY: MESSAGE. Exits with 1 if there is an error, and with " +
				"--strict also for a warning."},
		{Name: "delete", Args: "POD... | -f FILE|DIR|- | KIND NAME...",
			Summary: "delete pods, ConfigMaps, Secrets and claims that were applied", ArgsKind: command.TakesPods, Setup: objects.Delete,
			Detail: "KIND is configmap, secret or pvc. The data of a claim remains in its directory, until it is " +
				"deleted with islet delete pvc NAME --delete-data."},
		{Name: "objects", Args: "[KIND [NAME...]]",
			Summary: "list the ConfigMaps, Secrets and claims of this node's manifests", Setup: objects.List,
			Detail: "KIND is configmap, secret or pvc. Values are never shown. 'islet describe KIND NAME' shows more."},
		{
			Name: "config", Aliases: []string{"configuration"},
			Summary: "try a configuration on the node, which keeps it only if the trial succeeds",
			Sub:     change.Commands(),
		},
		{Name: "update", Args: "ARCHIVE|URL|--back", Summary: "try another version of islet, and keep it if the node " +
			"works as well as before", ArgsKind: command.TakesFiles, Setup: change.Update, Sub: change.UpdateCommands(),
			Detail: "ARCHIVE.release must be next to the archive, signed with keys that the node trusts " +
				"(edge.update.keys). The pods keep running.\nIf the new version fails, the node returns to the running " +
				"version by itself within a minute. Exits with 1 if the version is rejected or fails.\n" +
				"The replaced program is kept next to the installed one: 'islet update --back' returns to it without a network.\n" +
				"It does not wait for a ring of a staged rollout: see 'islet update status'."},
		{
			Name:    "bundle",
			Summary: "put all that a node should run into one signed file", Sub: bundle.Commands(),
		},
		{Name: "self-test", Hidden: true, Setup: change.SelfTest},
		{Name: "accept", Summary: "end the held pods, which no API server wants any more", Setup: node.Accept,
			Detail: "If the API server was restored from a backup or recreated, or the Node was deleted, the node " +
				"keeps running\nthe pods that the API server has lost. If the configuration has no cluster any more, it keeps all " +
				"pods of the cluster.\nThis command ends them: see 'islet status'."},
		{Name: "takeover", Summary: "give the name of the node to this machine, if another one had it", Setup: node.TakeOver,
			Detail: "A machine that uses the name of another one, such as after its disk was copied, sends nothing to " +
				"the API server\nand starts no pod that writes to shared volumes: see 'islet status'. Run this command " +
				"on the machine that keeps\nthe name, also after a board was replaced, or a network card of a machine " +
				"without a serial number.\nThe command waits up to 50 seconds to find out whether the other machine still uses the name, " +
				"and fails\nif it does."},
		{Name: "shutdown", Summary: "end all pods in order, as when the machine shuts down", Setup: node.Shutdown,
			Detail: "Waits until they have ended, for at most shutdownGracePeriod. The node starts no pods until the " +
				"next boot,\nor until --cancel. Service managers without logind run this command."},
		{Name: "clock", Args: "[reset]", Summary: "show the times that the node has recorded, or discard them",
			Setup: node.Clock,
			Detail: "Certificates are verified at a time that is never before a time that has certainly passed. " +
				"Use reset if that time is wrong."},
		{Name: "join", Args: "--k3s URL --token-file FILE", Summary: "make this machine a node of a k3s cluster", Setup: join.Join,
			NoAgent: true, Detail: "The k3s server issues the node's certificates. The command writes them to a directory below the " +
				"state directory,\nand sets the fields of /etc/islet/kubelet.yaml and edge.yaml with which the agent uses them. Other " +
				"fields stay.\nThen restart the agent. It renews the certificates, and keeps a tunnel to each server for logs and exec.\n" +
				"The command may be repeated, also for another cluster. If it fails, the node stays as it was."},
		{Name: "key", Summary: "seal the key of the database to a TPM, and print the key for sealed Secrets", Sub: node.KeyCommands()},
		{Name: "backup", Args: "FILE|- --to=KEY... [--bundles] [--include=PATH...] [-q] [AGENT FLAG...]",
			Summary: "write the identity and the state of the node to a sealed file", Setup: node.Backup, IsAgent: true,
			Detail: "The file replaces a dead board: see islet restore. It has the node's certificates and keys, the database, " +
				"store.key, sent\nconfigurations, the highest numbers of bundles and the configuration files. It has no images, data of " +
				"volumes or logs.\n--to=KEY is a public key (age1...) or a file with such keys. --new-key=FILE makes a private key and " +
				"prints its public key.\nKeep the private key away from the nodes.\n" +
				"--bundles adds the bundle in use, without its images. Without it, the node takes the bundle with this number again.\n" +
				"--include=PATH adds a file or directory that the configuration does not name.\n" +
				"--verify FILE --key=FILE checks a backup with the private key, and shows what is in it.\n" +
				"-q prints no progress on a terminal. The agent may run or not. A complete new backup replaces the previous one.\n" +
				"With -, it goes to the standard output."},
		{Name: "restore", Args: "FILE|- --key=FILE [--dry-run] [--set-aside] [--recovery] [-q] [AGENT FLAG...]",
			Summary: "make this board the node of a backup", Setup: node.Restore, IsAgent: true,
			Detail: "Run it before the first start of the agent. Then this board has the name and the keys of the node, and the " +
				"old board, if it\ncomes back, sends nothing to the API server. A restore that fails changes nothing.\n" +
				"--set-aside renames files of a node that are on this board; without it, they are an error. Nothing is deleted.\n" +
				"--recovery asks for the recovery key of a store.key that was sealed to the TPM of another board. --tpm=DEVICE is the " +
				"TPM\nof this one.\n" +
				"--bundle-number=NAME=NUMBER is the number of a bundle that the node had after the backup. It takes no lower one.\n" +
				"--include=PATH allows files outside of /etc/islet, /etc/kubernetes and the directories of the agent.\n" +
				"--dry-run checks the backup and this board, and changes nothing. -q prints no progress on a terminal."},
		{Name: "setup", Args: "[FILE] [AGENT FLAG...]", Summary: "make this machine a node with the file islet.yaml of its boot partition",
			Setup: node.SetUp, IsAgent: true,
			Detail: "The service runs this command before the agent. Without FILE, it uses /boot/firmware/islet.yaml or " +
				"/boot/islet.yaml,\nif one exists and is not in use yet. It writes the flags, settings and credentials to " +
				"/etc/islet, all or none.\n" +
				"Without flags of an agent, the flags of the installed service are used.\n" +
				"Exits with 1 if the file has a mistake, and with 75 if the command must be repeated before the agent starts."},
		{Name: "doctor", Args: "[--all] [--output=json] [--fix] [--dry-run] [--migrate [--write=DIR]] [AGENT FLAG...]",
			Summary: "check this host and show how to repair each finding", Setup: node.Doctor, IsAgent: true,
			Detail: "Needs no agent. Without agent flags it uses the settings of the running agent, or else " +
				"the settings of the installed\nservice.\n--fix removes leftovers of another kubelet or k3s that are certainly unused, " +
				"such as its bridge cni0;\nwith --dry-run it only lists them.\n" +
				"--migrate prints, step by step, how islet takes this host over from a kubelet, k3s, podman or docker, and the way " +
				"back.\nIt changes nothing. --write=DIR also writes translated manifests and settings of registries into a new directory."},
		{Name: "support", Args: "FILE|-", Summary: "write an archive for a report of a problem, without secrets",
			ArgsKind: command.TakesFiles, Setup: support.Write,
			Detail: "The archive has the status, the findings of doctor, versions, the end of the agent's log, the events and the " +
				"configuration.\nIt has no logs of pods. Secrets are replaced by REDACTED; redacted.txt lists how many of which kind.\n" +
				"Works without an agent too."},
		{Name: "agent", Args: "[FLAG...]", Summary: "run the agent, as the service does", Setup: node.Agent, IsAgent: true,
			Detail: "Flags without a command run the agent too: 'islet --pod-manifest-path=DIR' is " +
				"'islet agent --pod-manifest-path=DIR'.\n" +
				"/etc/islet/kubelet.yaml and /etc/islet/edge.yaml are read if they exist; --config and --edge-config replace them."},
		{Name: "cleanup", Args: "[AGENT FLAG...]",
			Summary: "end all pods of a stopped agent, and remove their leftovers from the host", Setup: node.Cleanup, IsAgent: true,
			Detail: "The state directory is kept, so the pods return with the agent. " +
				"Without flags, the flags of the installed service are used."},
		{Name: "version", Summary: "print the versions of this program and of the agent", Setup: node.Version},
		{Name: "completion", Args: "bash|zsh|fish", Summary: "print shell completion", Setup: setupCompletion, NoAgent: true,
			Detail: "For example: islet completion bash > /etc/bash_completion.d/islet"},
		{Name: "man", Args: "DIR", Summary: "write the manual pages to a directory", ArgsKind: command.TakesFiles, Setup: setupMan,
			Hidden: true},
		{Name: "help", Args: "[COMMAND]", Summary: "show help", ArgsKind: command.TakesCommands, Setup: setupHelp, NoAgent: true},
		{Name: "get", Hidden: true, Sub: getCommands()},
		{Name: "__complete", Hidden: true, Setup: setupComplete},
	}
}

// lookup finds a command by its name or alias.
func lookup(list []command.Command, name string) *command.Command {
	i := slices.IndexFunc(list, func(c command.Command) bool { return c.Name == name || slices.Contains(c.Aliases, name) })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// parseFlags returns the command's flags, including the common ones.
func parseFlags(c *command.Command, t *command.Tool) (*pflag.FlagSet, command.Runner) {
	flags := pflag.NewFlagSet(c.Name, pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	flags.SortFlags = false
	run := c.Setup(t, flags)
	if c.Hidden {
		flags.ParseErrorsWhitelist.UnknownFlags = true
	}
	flags.StringVar(&t.Socket, "socket", cmp.Or(t.Socket, t.Getenv("ISLET_SOCKET")), "the agent's unix socket; also $ISLET_SOCKET")
	flags.Lookup("socket").Hidden = c.NoAgent
	return flags, run
}

func joinPath(path []string) string { return strings.Join(path, " ") }

const podHelp = "POD is NAME, NAMESPACE/NAME, or the beginning of a name that only one pod has. As with kubectl, it may be\n" +
	"pod NAME or pod/NAME."

func printUsage(c *command.Command, w io.Writer, path []string, flags *pflag.FlagSet) {
	if c.Summary != "" { // a command for programs has none
		fmt.Fprintf(w, "%s%s.\n\n", strings.ToUpper(c.Summary[:1]), c.Summary[1:])
	}
	fmt.Fprintf(w, "Usage:\n  islet %s", joinPath(path))
	if flags.HasAvailableFlags() {
		fmt.Fprint(w, " [flags]")
	}
	if c.Args != "" {
		fmt.Fprint(w, " "+c.Args)
	}
	fmt.Fprintln(w)
	if c.ArgsKind == command.TakesPods {
		fmt.Fprintf(w, "\n%s\n", podHelp)
	}
	if c.Detail != "" {
		fmt.Fprintf(w, "\n%s\n", c.Detail)
	}
	printExamples(w, path)
	if flags.HasAvailableFlags() {
		fmt.Fprintf(w, "\nFlags:\n%s", flags.FlagUsagesWrapped(100))
	}
}

func printCommands(w io.Writer, list []command.Command, path []string) {
	name := joinPath(append([]string{"islet"}, path...))
	fmt.Fprintf(w, "Usage:\n  %s COMMAND [flags]\n", name)
	if len(path) == 0 {
		fmt.Fprint(w, "  islet agent [FLAG...]    run the agent; 'islet --help-flags' shows its flags\n")
	}
	fmt.Fprint(w, "\nCommands:\n")
	t := terminal.Table{Indent: "  "}
	for _, c := range list {
		if !c.Hidden {
			t.AddRow(c.Name, c.Summary)
		}
	}
	t.Print(w)
	fmt.Fprintf(w, "\n'%s COMMAND --help' shows more.\n", name)
	if len(path) == 0 {
		fmt.Fprint(w, `
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 agent not reachable, 4 not found;
exec: the code of the command.
`)
	}
}

func setupHelp(t *command.Tool, _ *pflag.FlagSet) command.Runner {
	return func(ctx context.Context, args []string) error {
		return dispatch(ctx, commands(), nil, append(args, "--help"), t)
	}
}
