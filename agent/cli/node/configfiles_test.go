package node_test

import (
	"strings"
	"testing"

	"github.com/islet-edge/islet/internal/api"
)

// TestConfigurationFiles checks that islet status prints the configuration files that the agent has read. If the agent has read no file,
// the command says so. If the agent's version does not report its files, the command prints nothing about files.
func TestConfigurationFiles(t *testing.T) {
	n, _ := startNode(t)
	for _, c := range []struct {
		files []string
		want  string // "" if there is no line
	}{
		{nil, ""},
		{[]string{}, "no files; /etc/islet/kubelet.yaml and /etc/islet/edge.yaml are read if they exist\n"},
		{[]string{"/etc/islet/kubelet.yaml", "/etc/islet/\x1b[2Jedge.yaml"}, "/etc/islet/kubelet.yaml, /etc/islet/?[2Jedge.yaml\n"},
	} {
		n.Describe = func(s *api.Status) { s.Files = c.files }
		got := run(t, n, "", "status")
		if _, line, _ := strings.Cut(got.Out, "\nConfiguration:"); got.Code != 1 || !strings.HasPrefix(strings.TrimLeft(line, " "), c.want) ||
			strings.Contains(got.Out, "\nConfiguration:") != (c.want != "") {
			t.Errorf("status with %q: %+v", c.files, got)
		}
	}
}
