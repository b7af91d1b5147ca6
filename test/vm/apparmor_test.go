package vm

import (
	"fmt"
	"strings"

	"github.com/islet-edge/islet/test/machine"
)

// guarded is a pod with an AppArmor profile, in YAML, that may mount unless its profile
// denies it.
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

// ownProfile is a profile as a person writes one.
const ownProfile = `profile edge-own flags=(attach_disconnected,mediate_deleted) {
  file,
  network,
  capability,
  signal,
  deny /etc/hosts r,
}
`

// guards demands of a kernel that has AppArmor on, as Debian's has it, that profiles are
// enforced, and that a pod whose profile is missing says so and starts once it is there:
// the default profile for want of the parser, and one of the machine's own.
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
		v.t.Errorf("the doctor says nothing of the parser:\n%s", out)
	}

	v.Run("DEBIAN_FRONTEND=noninteractive dpkg -i /var/cache/apparmor_*.deb")
	v.Await("[ $(islet pods --no-headers | grep -c Running) = 6 ]")
	v.Write("/etc/apparmor.d/edge-own", ownProfile)
	v.Run("apparmor_parser -r /etc/apparmor.d/edge-own")
	waitForPods(v, 7)
	guarding(v)
	label(v, "p0", "unconfined") // it is the container of before
	v.Reboot()
	waitForPods(v, 7)
	guarding(v)
	label(v, "p0", "islet-default (enforce)")
	if out, _ := v.Try("islet doctor --all"); !strings.Contains(out, "containers get its default profile") {
		v.t.Errorf("the doctor does not see the default profile:\n%s", out)
	}
}

// guarding demands that processes are confined, those of exec too, and that what each profile
// denies fails, which it does not in the other pods.
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

// label demands that a pod's process, and a further one of exec, have a profile.
func label(v *VM, pod, profile string) {
	v.t.Helper()
	inside := v.Run("islet exec " + pod + "-edge -- /podtool cat /proc/self/attr/current /proc/1/attr/current")
	for _, got := range strings.Split(strings.TrimSpace(inside), "\n") {
		if got != profile {
			v.t.Errorf("a process of pod %s has the profile %q, not %q", pod, got, profile)
		}
	}
}
