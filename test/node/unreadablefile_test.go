package node

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// failing makes a file answer EIO to who reads or writes it: it becomes the memory of the
// machine's init at address 0, where nothing is mapped. Nobody can replace or remove it.
func failing(m *machine.Machine, file string) {
	m.Run("mount", "--bind", "/proc/1/mem", filepath.Join(m.Disk, file))
}

// files lists the regular files of a node's state, root and configuration directories. Not
// among them are containerd's and the database's, which have tests of their own.
func files(t *testing.T, m *machine.Machine) (all []string) {
	t.Helper()
	err := filepath.WalkDir(m.Disk, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(m.Disk, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "state/containerd" || strings.Contains(name, "/volumes/") && strings.HasPrefix(name, "kubelet/pods/")):
			return fs.SkipDir
		case d.Type().IsRegular() && name != "agent.log" && !strings.HasPrefix(name, "state/islet.db"):
			all = append(all, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

const provider = `apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- {name: none, apiVersion: credentialprovider.kubelet.k8s.io/v1, matchImages: ["registry.example"], defaultCacheDuration: 1h}
`

// TestUnreadableFiles: each file of the state, root and configuration directories fails with EIO
// in turn, and the agent is started again. It starts, and every pod keeps its container.
func TestUnreadableFiles(t *testing.T) {
	t.Parallel()
	m := machine.New(t, "edge")
	m.InstallImage()
	m.Boot()
	ca, err := os.ReadFile("../../agent/access/testdata/ca.crt")
	_ = err
	m.Write("ca.crt", string(ca))
	m.Write("kubelet.yaml", m.Kubelet(machine.Roomy+"authentication: {anonymous: {enabled: true}}\nauthorization: {mode: AlwaysAllow}\n"))
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
	before := m.WaitReady("one-edge", "two-edge")
	for _, file := range files(t, m) {
		m.Kill()
		failing(m, file)
		p := m.LaunchAgent(flags...)
		ok := false
		for i := 0; i < 300 && !ok; i++ {
			select {
			case <-p.Ended:
				i = 1000
			default:
			}
			pods := m.Pods()
			ok = len(pods) == 2
			for name, b := range before {
				n := pods[name]
				ok = ok && n.Ready() && n.Status.ContainerStatuses[0].ContainerID == b.Status.ContainerStatuses[0].ContainerID
			}
		}
		t.Log(file, ok)
		if !ok {
			t.Errorf("%s: %s", file, m.AgentLog(1500))
		}
		m.Run("umount", filepath.Join(m.Disk, file))
		select {
		case <-p.Ended:
			m.StartAgent(flags...)
		default:
		}
	}
}
