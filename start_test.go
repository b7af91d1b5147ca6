package main

import (
	"os"
	"strings"
	"testing"

	"github.com/islet-edge/islet/internal/config"
)

// TestVersion checks the output of --version. Under the name kubelet, the output is only the line that kubeadm parses. Otherwise the
// version of islet is the first line.
func TestVersion(t *testing.T) {
	program := os.Args[0]
	t.Cleanup(func() { os.Args[0] = program })
	for name, want := range map[string]string{"/usr/bin/kubelet": "Kubernetes " + config.KubernetesVersion + "\n", "islet": "islet 1.2.3\nKubernetes " + config.KubernetesVersion + "\n"} {
		os.Args[0] = name
		var out, errs strings.Builder
		if code := start([]string{"--version"}, "1.2.3", nil, &out, &errs); code != 0 || out.String() != want {
			t.Errorf("%s: code %d, %q %s", name, code, out.String(), errs.String())
		}
	}
}
