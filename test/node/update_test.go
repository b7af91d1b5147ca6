package node

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// A updates is a node whose program the test may replace.
type updates struct {
	*testing.T
	*machine.Releaser
	m   *machine.Machine
	ids map[string]string
	bad []byte // the program test/badislet

	every string // the pause between two lines of the pod one
}

// newUpdates starts a node with two pods. The argument is a line of the node's EdgeConfiguration.
func newUpdates(t *testing.T, configuration string) *updates {
	t.Helper()
	u := bootUpdates(t)
	u.start(configuration, "{keys: ["+u.Public+"]}")
	return u
}

// bootUpdates returns a node whose agent has not been started.
func bootUpdates(t *testing.T) *updates {
	t.Helper()
	u := &updates{T: t, Releaser: machine.NewReleaser(t), m: machine.New(t, "edge"), every: "100ms"}
	u.m.OwnProgram()
	u.m.InstallImage()
	u.m.Boot()
	u.bad = u.BuildFailing()
	return u
}

// start starts the agent with two pods. The arguments are a line of the EdgeConfiguration, and the value of its field update.
func (u *updates) start(configuration, update string) {
	u.Helper()
	u.m.Write("edge.yaml", fmt.Sprintf("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: %s/cni\n%s\nupdate: %s\n",
		u.m.Disk, configuration, update))
	u.m.Write("manifests/one.yaml", manifest("one", "", "count", u.every))
	u.m.Write("manifests/two.yaml",
		manifest("two", "    readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1, failureThreshold: 1}\n", "serve", ":8080"))
	u.m.StartAgent()
	u.ids = containers(u.m.WaitReady("one-edge", "two-edge"))
}

// archive packs a program as a version, signs the archive, and returns its path.
func (u *updates) archive(version string, program []byte) string {
	u.Helper()
	file := u.m.Disk + "/islet.tar.gz"
	u.Release(file, version, program)
	return file
}

// brokenVersion returns the archive of a version that does not work.
func (u *updates) brokenVersion(how string) string { return u.archive("9.0.0", u.fails("9.0.0", how)) }

// fails returns the program of a version that does not work.
func (u *updates) fails(version, how string) []byte {
	return append(bytes.Clone(u.bad), "\n"+version+" "+how...)
}

// as checks that a version runs and that the containers have not changed.
func (u *updates) as(version string) {
	u.Helper()
	if out, _ := u.m.Try("status"); !strings.Contains(out, "islet "+version+",") {
		u.Errorf("version %s does not run:\n%s", version, out)
	}
	unharmed(u.T, u.m, u.ids)
	left, err := filepath.Glob(filepath.Dir(u.m.Binary()) + "/*")
	left = slices.DeleteFunc(left, func(path string) bool { return strings.HasSuffix(path, ".previous") }) // kept for islet update --back
	if err != nil || len(left) != 1 {
		u.Errorf("the program's directory contains %v, %v", left, err)
	}
}

// quickly contains short durations for trials.
const quickly = "configuration: {healthyFor: 2s, deadline: 15s}"

// TestUpdate checks that a good version is kept without a restart of containers. For other versions islet update must report the reason for
// the rejection.
func TestUpdate(t *testing.T) {
	t.Parallel()
	u := newUpdates(t, quickly)
	was := strings.Fields(u.m.Islet("version"))[1]
	u.as(was)
	file := u.archive("9.1.0", u.BuildVersion("9.1.0"))
	if out := u.m.Islet("update", "--dry-run", file); !strings.Contains(out, "version 9.1.0 can be tried") {
		t.Error(out)
	}
	u.as(was)
	if out := u.m.Islet("update", file); !strings.Contains(out, "version 9.1.0 is installed and runs") {
		t.Error(out)
	}
	u.as("9.1.0")
	u.m.Kill()
	u.m.StartAgent()
	u.as("9.1.0")
	for _, back := range []string{was, "9.1.0"} { // the archive is not needed
		if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if out := u.m.Islet("update", "--back"); !strings.Contains(out, "version "+back+" is installed and runs") {
			t.Error(out)
		}
		u.as(back)
	}
	if out, code := u.m.Try("update", u.m.Disk+"/none"); code != 1 || !strings.Contains(out, "no such file") {
		t.Errorf("code %d, %s", code, out)
	}
	if out, code := u.m.Try("update", "http://example.com/islet"); code != 1 || !strings.Contains(out, "only https") {
		t.Errorf("code %d, %s", code, out)
	}
	if out, code := u.m.Try("update", u.brokenVersion("crash")); code != 1 || !strings.Contains(out, "it is not newer") {
		t.Errorf("code %d, %s", code, out)
	}
}

// TestUpdateDist checks that a node accepts a release archive with all its files.
func TestUpdateDist(t *testing.T) {
	t.Parallel()
	dist := os.Getenv("ISLET_DIST")
	if dist == "" {
		t.Skip("no archive to take: set ISLET_DIST (make test-long does)")
	}
	u := newUpdates(t, quickly)
	file := u.m.Disk + "/" + filepath.Base(dist)
	u.m.Run("cp", dist, file)
	name := strings.TrimPrefix(filepath.Base(dist), "islet-")
	version, _, _ := strings.Cut(name, "-linux-")
	u.Sign(file, version, runtime.GOARCH)
	if out := u.m.Islet("update", "--older", file); !strings.Contains(out, "version "+version+" is installed and runs") {
		t.Error(out)
	}
	u.as(version)
}

// TestUpdateKilled kills all processes except the shims with SIGKILL during a trial. It checks that the previous version runs afterwards.
func TestUpdateKilled(t *testing.T) {
	t.Parallel()
	u := newUpdates(t, quickly)
	was := strings.Fields(u.m.Islet("version"))[1]
	u.m.Islet("update", "--no-wait", u.brokenVersion("hang"))
	onTrial := func() bool {
		b, _ := os.ReadFile(u.m.Disk + "/state/configuration.json")
		return bytes.Contains(b, []byte(`"trial":{`))
	}
	u.m.Await("the trial", func() bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(u.m.Processes())),
			func(cmd string) bool { return strings.Contains(cmd, "islet") }) && onTrial()
	})
	for pid, cmd := range u.m.Processes() {
		if !strings.Contains(cmd, "islet-shim") {
			syscall.Kill(pid, syscall.SIGKILL) //nolint:errcheck // it may have exited with its parent
		}
	}
	u.m.AwaitEnd()
	u.m.StartAgent()
	unharmed(t, u.m, u.ids)
	u.m.Await("the repeated trial to end, and version "+was+" to run", func() bool {
		out, _ := u.m.Try("status")
		return strings.Contains(out, "islet "+was+",") && !onTrial()
	})
}

// TestUpdateBlind checks that a version that does not read the node's manifests ends no pod. The node must try the version three times,
// because an administrator may have deleted the manifests.
func TestUpdateBlind(t *testing.T) {
	t.Parallel()
	u := newUpdates(t, "configuration: {healthyFor: 2s, deadline: 5s}")
	was := strings.Fields(u.m.Islet("version"))[1]
	u.m.Run("cp", u.m.Binary(), u.m.Disk+"/blind")
	out, code := u.m.Try("update", u.brokenVersion("blind "+u.m.Disk+"/blind"))
	if code != 1 || !strings.Contains(out, "2 pods that ran would end") {
		t.Errorf("code %d, %s", code, out)
	}
	u.as(was)
	if h := awaitShown(u.m).History; len(h) != 3 || !h[0].Interrupted || !h[1].Interrupted || h[2].Interrupted {
		t.Errorf("the trials are %+v", h)
	}
}
