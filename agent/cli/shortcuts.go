package cli

import (
	"slices"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/images"
	"github.com/islet-edge/islet/agent/cli/node"
	"github.com/islet-edge/islet/agent/cli/objects"
	"github.com/islet-edge/islet/agent/cli/pods"
	"github.com/islet-edge/islet/internal/podspec"
)

// shortcutTable maps the command words of other tools to islet's commands.
func shortcutTable() map[string][]string {
	return map[string][]string{
		"rmi":    {"images", "rm"},
		"pull":   {"images", "pull"},
		"import": {"images", "import"},
		"load":   {"images", "import"},
		"prune":  {"images", "prune"},
		"rm":     {"delete"},
		"log":    {"logs"},
		"df":     {"system", "df"},
	}
}

// findShortcut returns islet's command for the command word of another tool, or nil.
func findShortcut(word string) []string { return slices.Clone(shortcutTable()[word]) }

// getCommands are the subcommands of islet get, as in kubectl.
func getCommands() []command.Command {
	return []command.Command{
		{Name: "pods", Aliases: []string{"pod", "po", "all"}, Args: "[POD...]", Summary: "list pods", ArgsKind: command.TakesPods,
			OwnKinds: true, Setup: pods.List},
		{
			Name: "events", Aliases: []string{"event", "ev"}, Args: "[POD]",
			Summary: "show the events of pods and the node", ArgsKind: command.TakesPods, Setup: pods.Events,
		},
		{Name: "nodes", Aliases: []string{"node", "no"}, Summary: "show the state of the node", Setup: node.Status},
		{Name: "images", Aliases: []string{"image"}, Summary: "list images", Setup: images.List},
		{
			Name: "configmaps", Aliases: objects.KindNames()[podspec.ConfigMap], Args: "[NAME...]",
			Summary: "list ConfigMaps of manifests", Setup: objects.ListKind("configmap"),
		},
		{
			Name: "secrets", Aliases: objects.KindNames()[podspec.Secret], Args: "[NAME...]",
			Summary: "list Secrets of manifests", Setup: objects.ListKind("secret"),
		},
		{
			Name: "persistentvolumeclaims", Aliases: objects.KindNames()[podspec.Claim], Args: "[NAME...]",
			Summary: "list claims of manifests", Setup: objects.ListKind("pvc"),
		},
	}
}
