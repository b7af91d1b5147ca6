package node

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// mounting is a pod that mounts a directory of the host, and a subPath of this directory. Another file system is mounted below the
// directory.
const mounting = `apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  terminationGracePeriodSeconds: 1
  restartPolicy: Always
  containers:
  - name: c
    image: %[2]s
    imagePullPolicy: Never
    args: [sleep]
    securityContext: {privileged: true}
    volumeMounts:
    - {name: h, mountPath: /whole%[4]s}
    - {name: h, mountPath: /part, subPath: data%[4]s}
  - name: again
    image: %[2]s
    imagePullPolicy: Never
    args: [exit, "0", 300ms]
    volumeMounts:
    - {name: h, mountPath: /part, subPath: data}
  volumes:
  - {name: h, hostPath: {path: %[3]s}}
`

// TestHostMounts checks that pods leave no mounts on a host with a shared root. The pods use every mount propagation, and the host mounts
// a file system while the pods run. islet cleanup must also leave the mounts of the host unchanged.
func TestHostMounts(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	host := m.Disk + "/host"
	mount := func(dir string) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		m.Run("mount", "-t", "tmpfs", "-o", "size=1m", "disk", dir)
	}
	mount(host + "/data/disk")
	m.Run("touch", host+"/data/disk/kept")
	agent := m.StartAgent()
	before := hostMounts(m)
	if !slices.Contains(before, host+"/data/disk") {
		t.Fatalf("the host has %q", before)
	}
	var names []string
	for name, propagation := range map[string]string{"none": "", "slave": ", mountPropagation: HostToContainer", "both": ", mountPropagation: Bidirectional"} {
		m.Write("manifests/"+name+".yaml", fmt.Sprintf(mounting, name, machine.Image, host, propagation))
		names = append(names, name+"-edge")
	}
	m.WaitPods("every pod to have its second attempt", func(pods map[string]machine.Pod) bool {
		return !slices.ContainsFunc(names, func(n string) bool {
			return len(pods[n].Status.ContainerStatuses) != 2 ||
				!slices.ContainsFunc(pods[n].Status.ContainerStatuses, func(c machine.ContainerStatus) bool { return c.RestartCount > 0 })
		})
	})
	for name, wants := range map[string]struct{ whole, late bool }{"none-edge": {true, false}, "slave-edge": {true, true}, "both-edge": {true, true}} {
		if _, code := m.Try("exec", name, "-c", "c", "--", "/podtool", "cat", "/whole/data/disk/kept"); (code == 0) != wants.whole {
			t.Errorf("%s sees the mount below its volume: %v", name, code == 0)
		}
		if _, code := m.Try("exec", name, "-c", "c", "--", "/podtool", "cat", "/part/disk/kept"); code == 0 {
			t.Errorf("%s sees the mount below its subPath", name)
		}
	}
	mount(host + "/data/late")
	m.Run("touch", host+"/data/late/kept")
	for name, want := range map[string]bool{"none-edge": false, "slave-edge": true, "both-edge": true} {
		for _, at := range []string{"/whole/data/late/kept", "/part/late/kept"} {
			if _, code := m.Try("exec", name, "-c", "c", "--", "/podtool", "cat", at); (code == 0) != want {
				t.Errorf("%s sees %s, which the host mounted later: %v", name, at, code == 0)
			}
		}
	}
	for _, n := range []string{"none", "both"} {
		m.Remove("manifests/" + n + ".yaml")
	}
	m.WaitPods("the others to be gone", func(pods map[string]machine.Pod) bool { return len(pods) == 1 })
	m.Run("test", "-e", host+"/data/late/kept")
	after := append(slices.Clone(before), host+"/data/late")
	slices.Sort(after)
	if got := hostMounts(m); !slices.Equal(got, after) {
		t.Errorf("mounts of the host before\n%s\nand after\n%s", strings.Join(after, "\n"), strings.Join(got, "\n"))
	}

	m.Stop()
	<-agent.Ended
	if out, code := m.Try("cleanup", "--root-dir="+m.Disk+"/kubelet", "--state-dir="+m.Disk, "--run-dir=/run/islet"); code != 1 {
		t.Errorf("cleanup of a directory that is not islet's: %d, %s", code, out)
	}
	if out, code := m.Try("cleanup", "--root-dir="+m.Disk+"/kubelet", "--state-dir="+m.Disk+"/state", "--run-dir=/run/islet",
		"--config="+m.Disk+"/kubelet.yaml", "--edge-config="+m.Disk+"/edge.yaml"); code != 0 {
		t.Errorf("cleanup: %d, %s", code, out)
	}
	m.Run("test", "!", "-e", "/run/islet")
	if got := hostMounts(m); !slices.Equal(got, after) {
		t.Errorf("mounts of the host before cleanup\n%s\nand after\n%s", strings.Join(after, "\n"), strings.Join(got, "\n"))
	}
	m.Run("test", "-e", host+"/data/disk/kept")
}

// hostMounts returns the mounts that do not belong to pods.
func hostMounts(m *machine.Machine) []string {
	all := slices.DeleteFunc(m.Mounts(), func(p string) bool {
		return !strings.HasPrefix(p, m.Disk+"/") || strings.HasPrefix(p, m.Disk+"/kubelet/pods")
	})
	slices.Sort(all)
	return all
}
