package cli

import (
	"slices"

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
func getCommands() []command {
	return []command{
		{name: "pods", aliases: []string{"pod", "po", "all"}, args: "[POD...]", summary: "list pods", argsKind: takesPods, ownKinds: true,
			setup: setupPods},
		{
			name: "events", aliases: []string{"event", "ev"}, args: "[POD]",
			summary: "show the events of pods and the node", argsKind: takesPods, setup: setupEvents,
		},
		{name: "nodes", aliases: []string{"node", "no"}, summary: "show the state of the node", setup: setupStatus},
		{name: "images", aliases: []string{"image"}, summary: "list images", setup: setupImagesList},
		{
			name: "configmaps", aliases: kindNames()[podspec.ConfigMap], args: "[NAME...]",
			summary: "list ConfigMaps of manifests", setup: setupObjectsOf("configmap"),
		},
		{
			name: "secrets", aliases: kindNames()[podspec.Secret], args: "[NAME...]",
			summary: "list Secrets of manifests", setup: setupObjectsOf("secret"),
		},
		{
			name: "persistentvolumeclaims", aliases: kindNames()[podspec.Claim], args: "[NAME...]",
			summary: "list claims of manifests", setup: setupObjectsOf("pvc"),
		},
	}
}
