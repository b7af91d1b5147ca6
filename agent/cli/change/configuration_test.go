package change

import (
	"strings"
	"testing"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/internal/api"
)

// TestFilesOfConfiguration checks that islet config show prints the configuration files that the agent has read. If the agent has read no
// file, the command says so. If the agent's version does not report its files, the command prints nothing about files.
func TestFilesOfConfiguration(t *testing.T) {
	for _, c := range []struct {
		files []string
		want  string // "" if there is no line
	}{
		{nil, ""},
		{[]string{}, "no files; /etc/islet/kubelet.yaml and /etc/islet/edge.yaml are read if they exist\n"},
		{[]string{"/etc/islet/kubelet.yaml", "/etc/islet/\x1b[2Jedge.yaml"}, "/etc/islet/kubelet.yaml, /etc/islet/?[2Jedge.yaml\n"},
	} {
		var out strings.Builder
		x := &command.Tool{Out: &out}
		printConfiguration(x, &api.Configuration{Active: api.ConfigurationRef{ID: "local", From: "x"}, Files: c.files})
		if _, line, _ := strings.Cut(out.String(), "\nFiles: "); line != c.want {
			t.Errorf("config show with %q: %s", c.files, out.String())
		}
	}
}

// TestOutcomeText checks how islet config history names each outcome.
func TestOutcomeText(t *testing.T) {
	for want, h := range map[string]api.ConfigurationTrial{
		"accepted":         {},
		"failed: a b":      {Why: "a\n\tb"},
		"failed: unfit":    {Why: "unfit", Untried: "unfit"},
		"not tried: late":  {Why: "late", Untried: "late", Interrupted: true},
		"given up: paused": {Why: "paused", Interrupted: true, Withdrawn: true},
		"interrupted: off": {Why: "off", Interrupted: true},
	} {
		if got := outcomeText(&h); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}
