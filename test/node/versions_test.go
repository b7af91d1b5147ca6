package node

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// A version is a program of islet.
type version struct {
	version string
	text    []byte
}

// versions is a node that changes from an earlier version to this version and back.
type versions struct {
	*updates
	at    map[bool]version // false: the earlier one, true: this one
	newer bool             // this version runs
}

// bootVersions starts a node of the earlier version with two pods.
func bootVersions(t *testing.T) *versions {
	t.Helper()
	file := os.Getenv("ISLET_OLD")
	if file == "" {
		t.Skip("no earlier program to go back to: set ISLET_OLD (make test-versions and test-long do)")
	}
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	v := &versions{updates: bootUpdates(t)}
	v.every = "10ms" // the test looks for gaps in the log
	v.replace(version{text: old})
	v.start(quickly, "{keys: ["+v.Public+"]}")
	was := strings.Fields(v.m.Islet("version"))[1]
	v.at = map[bool]version{false: {was, old}, true: {"9.1.0", v.BuildVersion("9.1.0")}}
	return v
}

// replace replaces the installed program, as a package manager does.
func (v *versions) replace(to version) {
	v.Helper()
	file := v.m.Binary() + ".tmp"
	if err := errors.Join(machine.WriteProgram(file, to.text), os.Rename(file, v.m.Binary())); err != nil {
		v.Fatal(err)
	}
}

// restart starts the agent of the installed program, and checks that no container restarts.
func (v *versions) restart() {
	v.Helper()
	v.m.Kill()
	v.m.StartAgent()
	v.unharmed()
}

// turn updates to the other version.
func (v *versions) turn() {
	v.Helper()
	v.newer = !v.newer
	to := v.at[v.newer]
	if out, code := v.m.Try("update", "--older", v.archive(to.version, to.text)); code != 0 ||
		!strings.Contains(out, "version "+to.version+" is installed and runs") {
		v.Fatalf("from the other version to %s: code %d: %s\n%s", to.version, code, out, v.m.AgentLog(50))
	}
	v.unharmed()
}

// refuse checks that the earlier version cannot be installed, and that the message says why.
func (v *versions) refuse(why string) {
	v.Helper()
	to := v.at[false]
	if out, code := v.m.Try("update", "--older", v.archive(to.version, to.text)); code == 0 || !strings.Contains(out, why) {
		v.Errorf("to %s: code %d: %s, want %q", to.version, code, out, why)
	}
	v.unharmed()
}

// unharmed checks that the expected version runs, with the same containers.
func (v *versions) unharmed() {
	v.Helper()
	runs := v.at[v.newer].version
	if now := containers(v.m.WaitReady(slices.Sorted(maps.Keys(v.ids))...)); !maps.Equal(now, v.ids) {
		v.Errorf("with version %s containers are %v, were %v", runs, now, v.ids)
	}
	if out, _ := v.m.Try("status"); !strings.Contains(out, "islet "+runs+",") {
		v.Errorf("version %s does not run:\n%s", runs, out)
	}
}

// TestVersions updates from an earlier version to this version and back several times. Each version must continue the containers, shims,
// logs and records of the other version. The environment variable ISLET_OLD contains the path of the earlier program.
func TestVersions(t *testing.T) {
	t.Parallel()
	u := bootVersions(t)
	turn, was := u.turn, u.at[false].version
	works := func(pods ...string) {
		t.Helper()
		for _, pod := range pods {
			if out, code := u.m.Try("exec", pod, "--", "/podtool", "cat", "/etc/hostname"); out != pod+"\n" {
				t.Errorf("exec in %s: code %d: %s", pod, code, out)
			}
		}
		log := ""
		u.m.Await("a hundred lines of the log", func() bool {
			log, _ = u.m.Try("logs", "one-edge")
			return strings.Count(log, "\n") >= 100
		})
		noGap(t, log)
	}
	works("one-edge", "two-edge")
	turn()
	works("one-edge", "two-edge")
	u.m.Write("manifests/three.yaml", manifest("three", "", "count", "100ms"))
	u.ids = containers(u.m.WaitReady("one-edge", "two-edge", "three-edge"))
	turn()
	works("one-edge", "two-edge", "three-edge")
	u.m.Kill()
	u.m.StartAgent()
	u.as(was) // as also checks that no container has restarted
	u.m.Remove("manifests/two.yaml")
	u.m.WaitPods("the pod that began under this version to end", func(pods map[string]machine.Pod) bool {
		_, there := pods["two-edge"]
		return !there
	})
	u.m.Write("manifests/two.yaml", manifest("two", "", "serve", ":8080"))
	u.ids = containers(u.m.WaitReady("one-edge", "two-edge", "three-edge"))
	turn()
	works("one-edge", "two-edge", "three-edge")
	u.m.Remove("manifests/three.yaml") // this version started the pod, and the other one adopted it
	pods := u.m.WaitPods("the pod that began under this version to end", func(pods map[string]machine.Pod) bool {
		_, there := pods["three-edge"]
		return !there
	})
	u.ids = containers(pods)
	for range 2 { // a reboot after each of the two versions
		u.m.PowerOff()
		u.m.Boot()
		u.m.StartAgent()
		before := u.ids
		u.ids = containers(u.m.WaitReady("one-edge", "two-edge"))
		if maps.Equal(before, u.ids) {
			t.Errorf("containers survived a power failure: %v", u.ids)
		}
		turn()
		works("two-edge")
	}
}

// TestVersionsBundle goes to the earlier version and back while a bundle is in force. The earlier version does not know bundles. While the
// node's own EdgeConfiguration has keys of bundles, the update to it fails with a message that names the field. Without the keys, the
// earlier version keeps the pods of the bundle, also over a reboot. This version then finds the bundle in force again.
func TestVersionsBundle(t *testing.T) {
	t.Parallel()
	v := bootVersions(t)
	v.turn()
	own := func() string {
		t.Helper()
		text, err := os.ReadFile(v.m.Disk + "/edge.yaml")
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	plain := own()
	b := &bundles{t, v.m}
	b.configure("update: {keys: [" + v.Public + "]}\n")
	withKeys := own()
	v.restart()
	v.m.Write("wifi.yaml", fmt.Sprintf(wifi, "horse-battery"))
	v.m.Islet("bundle", "seal", v.m.Disk+"/wifi.yaml", "--to", strings.TrimSpace(v.m.Islet("key", "recipient")), "-o", v.m.Disk+"/sealed.yaml")
	secret, err := os.ReadFile(v.m.Disk + "/sealed.yaml")
	if err != nil {
		t.Fatal(err)
	}
	v.m.Islet("bundle", "apply", "--wait", b.build(1, "anna.key", map[string]string{"three": always(reader("three")),
		"settings": fmt.Sprintf(settings, "hello"), "wifi.sealed": string(secret)}))
	reads := func() {
		t.Helper()
		if got := file(v.m, "three", "/all/password"); got != "horse-battery" {
			t.Errorf("version %s: the sealed Secret of the bundle has %q", v.at[v.newer].version, got)
		}
	}
	pods := []string{"one-edge", "two-edge", "three"}
	v.ids = containers(v.m.WaitReady(pods...))
	v.refuse("bundle: unknown field")
	b.inUse(1)

	v.m.Write("edge.yaml", plain)
	v.restart()
	v.turn() // to the earlier version
	reads()
	v.restart()
	v.m.PowerOff()
	v.m.Boot()
	v.m.StartAgent()
	v.ids = containers(v.m.WaitReady(pods...))
	reads()
	v.turn()
	b.inUse(1)
	reads()
	v.m.Write("edge.yaml", withKeys)
	v.restart()
	b.inUse(1)
	v.m.Islet("bundle", "apply", "--wait", b.build(2, "anna.key", map[string]string{"four": always(manifest("four", "", "count", "100ms"))}))
	v.m.WaitPods("the pod of the former bundle to end", func(pods map[string]machine.Pod) bool {
		_, there := pods["three"]
		return !there
	})
	v.m.WaitReady("one-edge", "two-edge", "four")
}

// TestVersionsConfiguration goes to the earlier version and back with configurations of both API versions. While the node has an
// EdgeConfiguration in v1beta1, the update to the earlier version fails with a message that says why. If a package manager installs its
// program nevertheless, the earlier version uses the node's own files instead of a configuration in v1beta1 that was sent. This version
// then uses the sent configuration again.
func TestVersionsConfiguration(t *testing.T) {
	t.Parallel()
	v := bootVersions(t)
	send := func(apiVersion, text string) string {
		t.Helper()
		v.m.Write("sent.yaml", "apiVersion: "+apiVersion+"\n"+text)
		v.m.Islet("config", "apply", v.m.Disk+"/sent.yaml")
		s := awaitShown(v.m)
		if s.Active.ID == "local" || s.Problem != "" {
			t.Fatalf("%s: %+v", apiVersion, s)
		}
		v.unharmed()
		return s.Active.ID
	}
	uses := func(id, problem string) {
		t.Helper()
		s := awaitShown(v.m)
		if s.Active.ID != id || (s.Problem == "") != (problem == "") || !strings.Contains(s.Problem, problem) {
			t.Errorf("version %s uses %s, want %s: %s", v.at[v.newer].version, s.Active.ID, id, s.Problem)
		}
	}
	const want = "want islet.dev/v1alpha1"
	edge := "kind: EdgeConfiguration\nupdate: {keys: [" + v.Public + "]}\ncniConfDir: " + v.m.Disk + "/cni\n" + quickly + "\n"
	first := send("islet.dev/v1alpha1", edge) // by the earlier version
	v.turn()
	uses(first, "")
	v.turn()
	uses(first, "")
	v.turn()

	next := send("islet.dev/v1beta1", edge)
	v.refuse(want)
	uses(next, "")
	v.newer = false
	v.replace(v.at[false])
	v.restart()
	uses("local", want)
	if out, _ := v.m.Try("events"); !strings.Contains(out, "ConfigurationFailed") {
		t.Errorf("no event: %s", out)
	}
	v.newer = true
	v.replace(v.at[true])
	v.restart()
	uses(next, "")

	v.m.Islet("config", "revert") // to the configuration that the earlier version had
	v.m.Await("the configuration before", func() bool {
		s, ok := show(v.m)
		return ok && s.Active.ID == first && !s.Trying
	})
	v.m.Write("edge.yaml", "apiVersion: islet.dev/v1beta1\n"+edge)
	v.restart()
	v.refuse(want)
	v.m.Write("edge.yaml", "apiVersion: islet.dev/v1alpha1\n"+edge)
	v.restart()
	v.turn()
	uses(first, "")
}

// TestVersionsRefused gives the earlier version what it does not know: fields of the node's own EdgeConfiguration, and a sealed key. With
// an unknown field, the update to it must fail. If a package manager installs its program nevertheless, it must not start, and must name
// the field. With a sealed key it starts without the stored Secrets, and must not change the key. This version then continues
// with the same pods and Secrets. After the key was unsealed, the earlier version reads the Secrets.
func TestVersionsRefused(t *testing.T) {
	t.Parallel()
	machine.RequireTools(t, "swtpm")
	v := bootVersions(t)
	startTPM(t, v.m, t.TempDir())
	v.turn()
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(v.m.Disk + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	// This function starts the earlier version on this version's files.
	ends := func(why string) {
		t.Helper()
		v.m.Kill()
		before := len(v.m.AgentLog(1 << 20))
		v.replace(v.at[false])
		v.m.LaunchAgent()
		v.m.AwaitEnd()
		if said := v.m.AgentLog(1 << 20)[before:]; !strings.Contains(said, why) {
			t.Errorf("the earlier version does not say %q, but\n%s", why, said)
		}
		v.replace(v.at[true])
	}
	plain := read("edge.yaml")
	for _, field := range []string{"k3s: {directory: /nowhere}", "bundle: {source: https://example.com/bundle.tar}", "tpm: {device: /dev/tpmrm0}"} {
		v.m.Write("edge.yaml", plain+field+"\n")
		ends("unknown field")
		v.m.Write("edge.yaml", plain)
		v.m.StartAgent()
		v.unharmed()
	}
	v.m.Write("edge.yaml", strings.Replace(plain, "update: {", "update: {index: https://office.example.com/islet.index, ", 1))
	v.restart()
	v.refuse("unknown field")
	ends("unknown field")

	v.m.Write("edge.yaml", plain+"tpm: {device: "+v.m.Disk+"/tpm}\n")
	v.m.StartAgent()
	v.m.Write("secret.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: wifi}\nstringData: {password: hush}\n")
	v.m.Islet("apply", "-f", v.m.Disk+"/secret.yaml") // makes the key
	p, terminal, _ := showRecovery(t, v.m)
	if _, err := terminal.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
	<-p.Ended
	sealed := read("state/store.key")
	v.m.Write("edge.yaml", plain)
	v.m.Kill()
	v.newer = false
	v.replace(v.at[false])
	v.m.StartAgent()
	v.unharmed()
	if read("state/store.key") != sealed {
		t.Error("the earlier version has changed the sealed key")
	}
	has := func() {
		t.Helper()
		if out := v.m.Islet("objects"); !strings.Contains(out, "wifi") {
			t.Errorf("version %s: the Secret is lost: %s", v.at[v.newer].version, out)
		}
	}
	v.m.Kill()
	v.newer = true
	v.replace(v.at[true])
	v.m.Write("edge.yaml", plain+"tpm: {device: "+v.m.Disk+"/tpm}\n")
	v.m.StartAgent()
	v.unharmed()
	has()
	v.m.Islet(append([]string{"key", "unseal"}, flags(v.m, "/run/islet")...)...)
	v.m.Write("edge.yaml", plain)
	v.restart()
	v.turn()
	has()
}

// always returns the manifest of a pod whose containers restart.
func always(pod string) string { return strings.Replace(pod, "Never", "Always", 1) }
