package system

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// TestUpdate checks that a node under systemd or OpenRC updates islet within the supervised process and rolls back from broken versions.
// The next boot must start the new version. No container may restart, and the service manager must not restart the agent.
func TestUpdate(t *testing.T) {
	for name, init := range map[string][]string{"systemd": Systemd, "OpenRC": OpenRC} {
		t.Run(name, func(t *testing.T) { updated(t, init) })
	}
}

func updated(t *testing.T, init []string) {
	s := packaged(t, init, "deb", 2)
	r := machine.NewReleaser(t)
	release := func(version string, program []byte) string {
		t.Helper()
		file := version + ".tar.gz"
		r.Release(filepath.Join(s.Dir, "payload", file), version, program)
		return "islet update /payload/" + file
	}
	s.Run(fmt.Sprintf(`mkdir -p /etc/islet && printf '%%s\n' 'apiVersion: islet.dev/v1alpha1' 'kind: EdgeConfiguration' 'configuration: {healthyFor: 2s, deadline: 20s}' 'update: {keys: ["%s"]}' >/etc/islet/edge.yaml
		dpkg -i /payload/islet.deb && echo "ISLET_ARGS='--pod-manifest-path=/etc/kubernetes/manifests --edge-config=/etc/islet/edge.yaml'" >>/etc/default/islet`, r.Public))
	const agent = "pgrep -o -f '^/usr/bin/islet agent --pod-manifest-path'"
	active := "rc-service islet status"
	if s.init[0] == Systemd[0] {
		s.Run("systemctl restart islet.service")
		active = "systemctl is-active islet.service && [ $(systemctl show -P MainPID islet) = $(" + agent +
			") ] && [ $(systemctl show -P NRestarts islet) = 0 ]"
	} else {
		s.Run("rc-service islet restart")
	}
	waitForPods(s, 2)
	pods, process := s.Run(counting), s.Run(agent)
	as := func(what, version string) {
		t.Helper()
		if out, _ := s.Try("islet status"); !strings.Contains(out, "islet "+version+",") {
			t.Errorf("%s: version %s does not run:\n%s", what, version, out)
		}
		waitForPods(s, 2)
		if now := s.Run(counting); now != pods {
			t.Errorf("%s changed the pods' processes from\n%s to\n%s", what, pods, now)
		}
		if now := s.Run(agent); now != process {
			t.Errorf("%s: the agent's process %s is now %s", what, process, now)
		}
		s.Run(active)
	}
	if out := s.Run(release("9.1.0", r.BuildVersion("9.1.0"))); !strings.Contains(out, "version 9.1.0 is installed and runs") {
		t.Error(out)
	}
	as("an update", "9.1.0")
	bad := r.BuildFailing()
	for how, why := range map[string]string{"crash": "the agent ended", "hang": "within 20s", "testcrash": "fails its self-test"} {
		out, code := s.Try(release("9.2.0", append(bytes.Clone(bad), "\n9.2.0 "+how...)))
		if code != 1 || !strings.Contains(out, why) {
			t.Errorf("%s: code %d, %s", how, code, out)
		}
		as(how, "9.1.0")
	}
	s.Run("kill -9 " + process)
	s.Await("new=$(" + agent + ") && [ $new != " + strings.TrimSpace(process) + " ] && islet pods")
	if out, _ := s.Try("islet status"); !strings.Contains(out, "islet 9.1.0,") {
		t.Errorf("after kill -9 another version runs:\n%s", out)
	}
	waitForPods(s, 2)
	if now := s.Run(counting); now != pods {
		t.Errorf("kill -9 changed the pods' processes from\n%s to\n%s", pods, now)
	}
	s.PowerOff()
	s.Boot()
	waitForPods(s, 2)
	if out, _ := s.Try("islet status"); !strings.Contains(out, "islet 9.1.0,") {
		t.Errorf("after a boot another version runs:\n%s", out)
	}
}
