package node_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/islet-edge/islet/agent/cli"
	"github.com/islet-edge/islet/agent/cli/command"
)

// TestNoAgent checks that a program without an agent, such as the one for macOS, rejects the commands that need one.
func TestNoAgent(t *testing.T) {
	for _, line := range []string{"agent", "backup f --to=age1", "restore f --key=k", "setup", "doctor", "cleanup", "key status",
		"key recipient --state-dir=/x", "self-test"} {
		var out, errs bytes.Buffer
		code := cli.Main(t.Context(), strings.Fields(line), command.Env{
			Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" },
		})
		if code != command.ExitUsage || !strings.Contains(errs.String(), "no agent") || out.Len() > 0 {
			t.Errorf("islet %s: code %d, %q %q", line, code, errs.String(), out.String())
		}
	}
}
