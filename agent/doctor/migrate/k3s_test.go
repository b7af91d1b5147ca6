package migrate

import (
	"strings"
	"testing"
)

// TestKillall checks that the report names the script of k3s only while islet does not run, because the script deletes the volumes of
// islet's pods too.
func TestKillall(t *testing.T) {
	for _, runs := range []bool{false, true} {
		tree := recorded(t, "k3s-agent")
		if runs {
			put(t, tree.root, "run/islet/islet.sock", "")
		}
		var commands []string
		for _, s := range Find(tree, nil).Steps {
			commands = append(commands, s.Commands...)
		}
		text := strings.Join(commands, "\n")
		if strings.Contains(text, "killall") == runs || strings.Contains(text, "reboot") != runs {
			t.Errorf("islet runs: %v\n%s", runs, text)
		}
	}
}
