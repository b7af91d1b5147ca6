package vm

import (
	"fmt"
	"strings"

	"github.com/islet-edge/islet/test/machine"
)

// guarded returns a pod with an AppArmor profile. The pod may mount file systems unless the profile denies this.
func guarded(name, profile string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: c
    image: %q
    imagePullPolicy: Never
    args: [sleep]
    securityContext: {capabilities: {add: [SYS_ADMIN]}, appArmorProfile: %s}
`, name, machine.Image, profile)
}

// ownProfile is an AppArmor profile of an administrator.
const ownProfile = `profile edge-own flags=(attach_disconnected,mediate_deleted) {
  file,
  network,
  capability,
  signal,
  deny /etc/hosts r,
}
`

// guards checks AppArmor on a machine with a kernel that supports AppArmor, but without the AppArmor parser. Profiles must be enforced. A
// pod whose profile is missing must report the missing profile. The pod must start when the profile is loaded. This applies to the default
// profile, which needs the parser, and to a local profile.
func guards(v *VM) {
	v.t.Helper()
	if out := v.Run("cat /sys/module/apparmor/parameters/enabled; command -v apparmor_parser || true"); strings.TrimSpace(out) != "Y" {
		v.t.Fatalf("not a machine with AppArmor and without its parser: %q", out)
	}
	const manifests = "/etc/kubernetes/manifests/"
	v.Write(manifests+"asks.yaml", guarded("asks", "{type: RuntimeDefault}"))
	v.Write(manifests+"own.yaml", guarded("own", "{type: Localhost, localhostProfile: edge-own}"))
	v.Write(manifests+"free.yaml", guarded("free", "{type: Unconfined}"))
	v.Await(`islet describe asks-edge | grep -F "AppArmor's default profile cannot be loaded: apparmor_parser is not installed: install the package apparmor"`)
	v.Await(`islet describe own-edge | grep -F 'AppArmor profile "edge-own" is not loaded: load it on the node with apparmor_parser -r'`)
	v.Await("[ $(islet pods --no-headers | grep -c Running) = 5 ]")
	label(v, "free", "unconfined")
	v.Run("islet exec free-edge -- /podtool mount /sys")
	if out, _ := v.Try("islet doctor --all"); !strings.Contains(out, "apparmor_parser is not installed") {
		v.t.Errorf("islet doctor does not report the missing parser:\n%s", out)
	}

	v.Run("DEBIAN_FRONTEND=noninteractive dpkg -i /var/cache/apparmor_*.deb")
	v.Await("[ $(islet pods --no-headers | grep -c Running) = 6 ]")
	v.Write("/etc/apparmor.d/edge-own", ownProfile)
	v.Run("apparmor_parser -r /etc/apparmor.d/edge-own")
	waitForPods(v, 7)
	guarding(v)
	label(v, "p0", "unconfined") // the container has not restarted
	v.Reboot()
	waitForPods(v, 7)
	guarding(v)
	label(v, "p0", "islet-default (enforce)")
	if out, _ := v.Try("islet doctor --all"); !strings.Contains(out, "containers get its default profile") {
		v.t.Errorf("islet doctor does not report the default profile:\n%s", out)
	}
}

// guarding checks that the processes of containers and of exec are confined. An operation must fail only in the pod whose profile denies
// it.
func guarding(v *VM) {
	v.t.Helper()
	const hosts, mount = "cat /etc/hosts", "mount /sys"
	for _, c := range []struct {
		pod, profile, may, mayNot string
	}{
		{"asks", "islet-default (enforce)", hosts, mount},
		{"own", "edge-own (enforce)", "cat /etc/resolv.conf", hosts},
		{"free", "unconfined", mount, ""},
	} {
		label(v, c.pod, c.profile)
		run := "islet exec " + c.pod + "-edge -- /podtool "
		v.Run(run + c.may)
		if c.mayNot == "" {
			continue
		}
		if out, code := v.Try(run + c.mayNot); code == 0 || !strings.Contains(out, "permission denied") {
			v.t.Errorf("%s in pod %s, whose profile denies it: exit code %d, %s", c.mayNot, c.pod, code, out)
		}
	}
}

// label checks the AppArmor profile of a pod's process and of a process of exec.
func label(v *VM, pod, profile string) {
	v.t.Helper()
	inside := v.Run("islet exec " + pod + "-edge -- /podtool cat /proc/self/attr/current /proc/1/attr/current")
	for _, got := range strings.Split(strings.TrimSpace(inside), "\n") {
		if got != profile {
			v.t.Errorf("a process of pod %s has the profile %q, not %q", pod, got, profile)
		}
	}
}
