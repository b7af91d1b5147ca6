package node

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// A consent is a node whose local fields are changed with consent.
type consent struct {
	*machine.Machine
	t *testing.T
}

// apply applies a configuration with consent to change the given fields, and checks that the configuration is in use. In the text, DISK is
// the machine's directory and CGROUP its cgroup.
func (c *consent) apply(fields, text string) {
	c.t.Helper()
	if out, code := c.try(fields, text); code != 0 || !strings.Contains(out, "is in use") {
		c.t.Fatalf("%s: code %d: %s", fields, code, out)
	}
}

func (c *consent) try(fields, text string) (string, int) {
	return apply(c.Machine, strings.NewReplacer("DISK", c.Disk, "CGROUP", c.Cgroup).Replace(text), "--consent", fields)
}

// revert returns to the configuration of the local files.
func (c *consent) revert() {
	c.t.Helper()
	if out := c.Islet("config", "revert"); !strings.Contains(out, "configuration local is in use") {
		c.t.Error(out)
	}
}

// serves starts a pod with a web server and checks that another pod reaches it. It returns the address of the new pod.
func (c *consent) serves(name, from string) string {
	c.t.Helper()
	c.Write("manifests/"+name+".yaml", manifest(name, "", "serve", ":80"))
	c.Await(name+" to be ready", func() bool { return c.Pods()[name+"-edge"].Ready() })
	ip := c.Pods()[name+"-edge"].Status.PodIP
	if out := c.Islet("exec", from+"-edge", "--", "/podtool", "get", "http://"+ip); out != name+"-edge\n" {
		c.t.Errorf("the response of %s to %s is %q", name, from, out)
	}
	return ip
}

// TestConsent checks that local fields can be changed with consent and changed back while pods run. An impossible change must be rejected
// with a reason. An ended pod must leave nothing behind. It does not matter which configuration started the pod.
func TestConsent(t *testing.T) {
	t.Parallel()
	m := machine.New(t, "edge")
	c := &consent{m, t}
	m.InstallImage()
	m.Boot()
	m.Write("kubelet.yaml", fmt.Sprintf("%scgroupRoot: %s\npodLogsDir: %s/logs\nstaticPodPath: %[3]s/manifests\n", kubeletHead,
		m.Cgroup, m.Disk))
	ids := started(m)

	c.apply("podCIDR", kubeletHead+"podCIDR: 10.77.0.0/24\n")
	unharmed(t, m, ids) // the running pods keep their addresses
	if ip := c.serves("web", "one"); !strings.HasPrefix(ip, "10.77.0.") {
		t.Errorf("a new pod has the address %s", ip)
	}
	c.revert()
	if ip := c.serves("own", "web"); !strings.HasPrefix(ip, "10.42.0.") {
		t.Errorf("a new pod has the address %s", ip)
	}
	m.Remove("manifests/web.yaml")
	m.Remove("manifests/own.yaml")
	unharmed(t, m, ids)

	c.apply("edge.criSocket", edgeHead+"criSocket: /run/islet/cri.sock\n")
	unharmed(t, m, ids)
	if !slices.Contains(m.Files("/run/islet"), "cri.sock") {
		t.Error("the CRI socket is missing")
	}
	c.revert()
	unharmed(t, m, ids)
	if slices.Contains(m.Files("/run/islet"), "cri.sock") {
		t.Error("CRI is still served")
	}

	c.apply("edge.imagesDir", edgeHead+"imagesDir: DISK/inbox\n")
	image, err := os.ReadFile(machine.ArchivesOf(t, map[string]int{"other": 0})[0])
	if err != nil {
		t.Fatal(err)
	}
	m.Write("inbox/other.tar", string(image))
	m.Await("the image of the other inbox", func() bool { return strings.Contains(m.Islet("images", "ls"), machine.RefOf("other")) })
	c.revert()
	unharmed(t, m, ids)

	links := m.Links()
	if out, code := c.try("edge.bridgeName", edgeHead+"bridgeName: other0\n"); code == 0 ||
		!strings.Contains(out, "interface islet0 has the address 10.42.0.1 already") {
		t.Errorf("two bridges with the same address: code %d, %s", code, out)
	}
	unharmed(t, m, ids)
	if now := m.Links(); !slices.Equal(now, links) {
		t.Errorf("interfaces were %v, are %v", links, now)
	}

	c.checkHeld()
	unharmed(t, m, ids)
	c.moveManifests()
	c.startElsewhere()
}

// checkHeld checks that some fields cannot be changed while pods run, because the pods depend on them.
func (c *consent) checkHeld() {
	c.t.Helper()
	for field, value := range map[string]string{"cgroupRoot": "CGROUP/other", "cgroupDriver": "systemd", "podLogsDir": "DISK/otherlogs"} {
		if out, code := c.try(field, kubeletHead+field+": "+value+"\n"); code == 0 ||
			!strings.Contains(out, field+": Forbidden: this node has 2 pods") {
			c.t.Errorf("%s: code %d, %s", field, code, out)
		}
	}
}

// moveManifests changes the directory of static pods and changes it back.
func (c *consent) moveManifests() {
	c.t.Helper()
	c.Write("other/two.yaml", manifest("two", "", "count", "100ms"))
	c.Write("other/three.yaml", manifest("three", "", "count", "100ms"))
	before := containers(c.Pods())
	c.apply("staticPodPath", kubeletHead+"staticPodPath: DISK/other\n")
	now := containers(c.WaitReady("three-edge", "two-edge"))
	if now["two-edge"] == before["two-edge"] { // the UID of a static pod depends on the path of its file
		c.t.Errorf("containers were %v, are %v", before, now)
	}
	c.revert()
	c.WaitReady("one-edge", "two-edge")
}

// startElsewhere runs and deletes pods with other directories for logs and cgroups.
func (c *consent) startElsewhere() {
	c.t.Helper()
	c.Remove("manifests/one.yaml")
	c.Remove("manifests/two.yaml")
	c.WaitReady()
	c.clean()
	c.apply("cgroupRoot,podLogsDir", kubeletHead+"cgroupRoot: CGROUP/other\npodLogsDir: DISK/otherlogs\n")
	c.Write("manifests/one.yaml", manifest("one", "", "count", "100ms"))
	c.WaitReady("one-edge")
	if cgroups := c.Cgroups(); len(cgroups) != 1 || !strings.HasPrefix(cgroups[0], "/other/") || len(c.Files(c.Disk+"/otherlogs")) != 1 {
		c.t.Errorf("cgroups are %v, logs %v", cgroups, c.Files(c.Disk+"/otherlogs"))
	}
	if out, code := c.Try("config", "revert"); code == 0 || !strings.Contains(out, "this node has 1 pods") {
		c.t.Errorf("a revert while a pod uses the directories: code %d, %s", code, out)
	}
	c.Remove("manifests/one.yaml")
	c.WaitReady()
	c.clean()
	c.revert()
	c.Write("manifests/one.yaml", manifest("one", "", "count", "100ms"))
	c.WaitReady("one-edge")
}

// clean waits until no resources of pods are left.
func (c *consent) clean() {
	c.t.Helper()
	c.Await("nothing of pods to be left", func() bool {
		return len(c.ContainerProcesses())+len(c.Cgroups())+len(c.Files(c.Disk+"/logs"))+len(c.Files(c.Disk+"/otherlogs"))+
			len(c.Files(c.Disk+"/state/container-logs")) == 0 &&
			slices.Equal(c.Links(), []string{"islet0"})
	})
	for _, mount := range c.Mounts() {
		if strings.Contains(mount, "/pods/") || strings.HasPrefix(mount, "/run/islet/ns/") {
			c.t.Errorf("a mount is left: %s", mount)
		}
	}
}
