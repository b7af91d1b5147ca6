package cli

import (
	"testing"

	"github.com/islet-edge/islet/agent/cli/command"
)

func TestWordsOfOtherTools(t *testing.T) {
	n, _ := startNode(t)
	pods := run(t, n, "", "pods").Out
	for _, args := range [][]string{{"get", "pods"}, {"get", "po"}, {"ls"}, {"ps"}, {"get", "all"}} {
		check(t, n, run(t, n, "", args...), 0, pods, "")
	}
	check(t, n, run(t, n, "", "get", "pods", "dns", "-o", "name"), 0, "pod/dns-pi\n", "")
	check(t, n, run(t, n, "", "stats", "pods", "--no-headers", "web"), 0, run(t, n, "", "top", "--no-headers", "web").Out, "")
	check(t, n, run(t, n, "", "rmi", "localhost/web:1"), 0, "removed localhost/web:1\n", "")
	check(t, n, run(t, n, "", "rmi", "localhost/web:1"), command.ExitNotFound, "", "islet: image \"localhost/web:1\" not found\n")
	check(t, n, run(t, n, "", "get", "services"), command.ExitUsage, "", "islet: unknown command \"services\": see 'islet help'\n")
	check(t, n, run(t, n, "", "rm", "crash", "--force"), 0, "pod/crash-pi deleted\n", "")
}

// TestShortcuts checks that each shortcut stands for an existing command.
func TestShortcuts(t *testing.T) {
	for word, args := range shortcutTable() {
		list := commands()
		for _, name := range args {
			c := lookup(list, name)
			if c == nil {
				t.Fatalf("%s leads to %q, which is not a command", word, args)
			}
			list = c.Sub
		}
		if lookup(commands(), word) != nil {
			t.Errorf("%s is also the name of a command", word)
		}
	}
}
