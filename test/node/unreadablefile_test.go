package node

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// regular returns the regular files of a node's configuration, state and root directories. It skips the files of the runtime and the
// database, which have separate tests, and files in volumes.
func regular(t *testing.T, m *machine.Machine) (files []string) {
	t.Helper()
	err := filepath.WalkDir(m.Disk, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(m.Disk, path)
		switch {
		case err != nil:
			return err
		case name == "state/containerd" || name == "state/runtime" || strings.HasPrefix(name, "kubelet/pods/") && d.Name() == "volumes":
			return fs.SkipDir
		case d.Type().IsRegular() && name != "agent.log" && !strings.HasPrefix(name, "state/islet.db"):
			files = append(files, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

const provider = `apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- {name: none, apiVersion: credentialprovider.kubelet.k8s.io/v1, matchImages: ["registry.example"], defaultCacheDuration: 1h}
`

// reads contains the files that the agent must read. If such a file is unreadable, the log must name the file.
var reads = []string{"kubelet.yaml", "drop/10.conf", "edge.yaml", "provider.yaml", "manifests/one.yaml", "state/images/podtool.tar"}

// TestUnreadableFiles checks that the agent starts although a file of the configuration, state or root directory fails with EIO. No
// container may restart, and a new pod must start. The test uses the files that the agent must read. With ISLET_TEST_LONG it uses all
// files.
func TestUnreadableFiles(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.Write("kubelet.yaml", m.Kubelet(machine.Roomy))
	m.Write("drop/10.conf", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 20\n")
	m.Write("provider.yaml", provider)
	m.Write("providers/none", "#!/bin/sh\nexit 1\n")
	if err := os.Chmod(filepath.Join(m.Disk, "providers/none"), 0o755); err != nil {
		t.Fatal(err)
	}
	volumes := "    volumeMounts: [{name: v, mountPath: /v}]\n  volumes: [{name: v, emptyDir: {}}]\n"
	m.Write("manifests/one.yaml", manifest("one", volumes, "sleep"))
	m.Write("manifests/two.yaml", manifest("two", volumes, "sleep"))
	flags := []string{"--config-dir=" + m.Disk + "/drop", "--image-credential-provider-config=" + m.Disk + "/provider.yaml", "--image-credential-provider-bin-dir=" + m.Disk + "/providers"}
	m.StartAgent(flags...)
	before := containers(m.WaitReady("one-edge", "two-edge"))

	// whole starts the agent while a file is unreadable, checks the pods, and makes the file readable again.
	whole := func(name string) {
		t.Helper()
		started := len(m.AgentLog(1 << 30))
		m.StartAgent(flags...)
		m.Write("manifests/new.yaml", manifest("new", "", "sleep")) // a running pod shows that its manifest was read
		if now := m.WaitReady("one-edge", "two-edge", "new-edge"); changed(before, now) != 0 {
			t.Errorf("%s is unreadable: containers were replaced: %v, before %v", name, containers(now), before)
		}
		if log := m.AgentLog(1 << 30)[started:]; slices.Contains(reads, name) && !strings.Contains(log, name+": input/output error") {
			t.Errorf("the log does not contain the error of %s:\n%s", name, log)
		}
		m.Run("umount", "-l", filepath.Join(m.Disk, name))
		m.Remove("manifests/new.yaml")
		m.WaitReady("one-edge", "two-edge")
	}
	all := reads
	if os.Getenv("ISLET_TEST_LONG") != "" {
		all = regular(t, m)
	}
	for _, file := range all {
		m.Kill() // address 0 of the init process is unmapped, so reads and writes fail with EIO
		m.Run("mount", "--bind", "/proc/1/mem", filepath.Join(m.Disk, file))
		t.Log(file)
		whole(file)
	}
}
