package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/agent/change/configure"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/k3s"
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

// TestInterruptedJoin checks that the agent completes an islet join that a power cut has ended, and then loads the result. The result has a
// mistake, so the agent ends before it changes this process.
func TestInterruptedJoin(t *testing.T) {
	dir := t.TempDir()
	kubelet, root := filepath.Join(dir, "kubelet.yaml"), k3s.Root(filepath.Join(dir, "state"))
	text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: "
	old, result := []byte(text+"7\n"), []byte(text+"-8\n")
	if err := errors.Join(os.MkdirAll(root, 0o700), os.WriteFile(kubelet, old, 0o600)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { // a command that is killed at its last step
		defer close(ended)
		pair, file := &k3s.Pair{}, k3s.File{Path: kubelet, Mode: 0o600, Old: old, New: result}
		_ = k3s.Store(root, &k3s.Cluster{Client: pair, Serving: pair}, []k3s.File{file}, func() error {
			runtime.Goexit()
			return nil
		})
	}()
	<-ended
	if err := os.WriteFile(kubelet, old, 0o600); err != nil { // the write of this file was lost
		t.Fatal(err)
	}
	run := func(context.Context, *config.Config, *configure.Start, context.CancelCauseFunc, string, *slog.Logger) error {
		return errors.New("the agent runs with the old configuration")
	}
	var out, errs strings.Builder
	args := []string{"--config=" + kubelet, "--edge-config=", "--state-dir=" + filepath.Join(dir, "state")}
	if code := start(args, "1.2.3", run, &out, &errs); code != 2 || !strings.Contains(errs.String(), "maxPods") {
		t.Errorf("code %d: %s%s", code, out.String(), errs.String())
	}
}

// TestOrInstalled checks that a command without flags of an agent gets the flags of the service.
func TestOrInstalled(t *testing.T) {
	service := func() ([]string, bool) { return []string{"--state-dir=/data"}, true }
	for _, c := range []struct{ args, want string }{
		{"", "--state-dir=/data"}, {"islet.yaml", "islet.yaml --state-dir=/data"}, {"islet.yaml --root-dir=/r", "islet.yaml --root-dir=/r"},
	} {
		if got := strings.Join(orInstalled(strings.Fields(c.args), service), " "); got != c.want {
			t.Errorf("%q: %q", c.args, got)
		}
	}
}

// TestOfRemoved checks that the flags of a service still have its directories after kubeadm reset has removed the configuration.
func TestOfRemoved(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	flags := []string{"--config=" + file, "--edge-config=", "--state-dir=/data", "--root-dir=/r"}
	if got := strings.Join(ofRemoved(flags), " "); got != "--edge-config= --state-dir=/data --root-dir=/r" {
		t.Error(got)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := ofRemoved(flags); !slices.Equal(got, flags) {
		t.Error(got)
	}
}
