package cli

import (
	"strings"
	"testing"
)

func TestComplete(t *testing.T) {
	n, _ := startNode(t)
	for _, c := range []struct{ words, want string }{
		{"lo", "logs\n"},
		{"images im", "import\n"},
		{"logs w", "web-pi\n"},
		{"logs kube", "kube-system/dns-pi\n"},
		{"logs --prev", "--previous\n"},
		{"logs web -c s", "sidecar\n"},
		{"pods -o y", "yaml\n"},
		{"images rm l", "localhost/web:1\n"},
		{"exec web -- l", ""},
	} {
		check(t, n, run(t, n, "", append([]string{"__complete", "--"}, strings.Split(c.words, " ")...)...), 0, c.want, "")
	}
}
