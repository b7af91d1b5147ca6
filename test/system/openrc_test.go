package system

import (
	"strings"
	"testing"
)

// TestOpenRC checks that the package's init script starts, supervises, restarts and stops the agent under a real OpenRC. The pods must
// continue to run, and start at the next boot.
func TestOpenRC(t *testing.T) {
	s := packaged(t, OpenRC, "deb", 2)
	t.Log(upgraded(s, 2, "dpkg -i /payload/islet.deb", "dpkg -i /payload/islet-next.deb"))
	s.Run("rc-service islet status && rc-update show default | grep -q islet && ! systemctl is-active islet.service 2>/dev/null && [ $(stat -c %a /etc/init.d/islet) = 755 ]")
	before := s.Run(counting)
	same := func(what string) {
		t.Helper()
		waitForPods(s, 2)
		if after := s.Run(counting); after != before {
			t.Errorf("%s changed the pods' processes from\n%s to\n%s", what, before, after)
		}
	}
	s.Run("rc-service islet restart")
	same("a restart")
	const agent = "pgrep -f '^/usr/bin/islet agent --pod-manifest-path'"
	was := strings.TrimSpace(s.Run(agent))
	s.Run("kill -9 " + was)
	s.Await("new=$(" + agent + ") && [ \"$new\" != " + was + " ]")
	same("kill -9")
	s.Run("rc-service islet status && rc-service islet stop && ! rc-service islet status && ! " + agent)
	if after := s.Run(counting); after != before {
		t.Errorf("a stop changed the pods' processes from\n%s to\n%s", before, after)
	}
	s.Run("rc-service islet start")
	same("a start")
	s.PowerOff()
	s.Boot()
	waitForPods(s, 2)
	s.Run("dpkg -P islet && ! test -e /etc/init.d/islet && ! rc-update show | grep -q islet && ! test -e /var/lib/islet && ! test -e /var/log/islet.log")
	if left, _ := s.Try(counting); left != "" {
		t.Errorf("processes of pods are left: %s", left)
	}
	// If policy-rc.d forbids the start of the service, the next boot starts it. The same applies to an installation into an image, where
	// OpenRC does not run.
	const inRunlevel = " && rc-update show default | grep -q islet && ! rc-service islet status && ! " + agent
	if out := s.Run("unshare -m sh -c 'mount -t tmpfs none /run && mkdir /run/openrc && dpkg -i /payload/islet.deb'" +
		inRunlevel); strings.Contains(out, "start") {
		t.Error(out)
	}
	s.Run(`dpkg -P islet && printf '#!/bin/sh\n[ "$*" != "islet start" ] || exit 101\n' >/usr/sbin/policy-rc.d && chmod 755 /usr/sbin/policy-rc.d && dpkg -i /payload/islet.deb` + inRunlevel)
	s.Run("rc-service islet start && dpkg -P islet && ! " + agent)
}
