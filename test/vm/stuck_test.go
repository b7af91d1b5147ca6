package vm

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// TestStuckShim checks a shim that does not respond. Its container must be killed through the container's cgroup (v2). The other
// containers of the shim must continue. The killed container must be removed when the shim continues. ISLET_PACKAGES contains the
// directory of make packages.
func TestStuckShim(t *testing.T) {
	deb := debian(t, "ISLET_PACKAGES")
	files := payload(t)
	delete(files, "islet.tar.gz")
	files["islet.deb"] = deb
	v := New(t, filepath.Join(machine.Root(t), ".cache"), files)
	v.Diagnose = diagnose
	v.Boot()
	v.Run("mkdir -p /var/lib/islet/images /etc/kubernetes/manifests && cp /payload/podtool.tar /var/lib/islet/images/ && cp /payload/files/p[0-3].yaml /etc/kubernetes/manifests/")
	v.Run("dpkg -i /payload/islet.deb")
	waitForPods(v, 4)
	const shims, alive = "'[i]slet-shim.*serve'", "ps -C podtool -o pid=,stat= | grep -v Z"
	before := v.Run(alive)
	v.Run("[ $(stat -fc %T /sys/fs/cgroup) = cgroup2fs ] && pkill -STOP -f " + shims + " && rm /etc/kubernetes/manifests/p0.yaml")
	v.Await("[ $(" + alive + " | wc -l) = 3 ]")
	v.Await("islet pods -o json | grep 'killed by the agent'")
	after := v.Run(alive)
	v.Run("pkill -CONT -f " + shims)
	v.Await("[ $(islet pods --no-headers | wc -l) = 3 ]")
	waitForPods(v, 3)
	if now := v.Run(alive); now != after || strings.Count(now, "\n") != 3 || strings.Count(before, "\n") != 4 {
		t.Errorf("processes of containers were\n%s, then\n%s, and are\n%s", before, after, now)
	}
}
