package node

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// updates is a node whose program may be replaced.
type updates struct {
	*testing.T
	m   *machine.Machine
	ids map[string]string
	bad []byte // test/badislet

	sign, key string // packaging/sign, and the file of a key of its
}

// newUpdates starts one with two pods. configuration is a line of its EdgeConfiguration.
func newUpdates(t *testing.T, configuration string) *updates {
	t.Helper()
	u := &updates{T: t, m: machine.New(t, "edge"), sign: filepath.Join(t.TempDir(), "sign"), key: filepath.Join(t.TempDir(), "key")}
	if err := os.WriteFile(u.sign, u.build("packaging/sign", "./packaging/sign"), 0o755); err != nil {
		t.Fatal(err)
	}
	public, err := exec.Command(u.sign, "key", u.key).Output()
	if err != nil {
		t.Fatal(err)
	}
	u.m.OwnProgram()
	u.m.InstallImage()
	u.m.Boot()
	u.m.Write("edge.yaml", fmt.Sprintf("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: %s/cni\n%s\nupdate: {keys: [%s]}\n", u.m.Disk, configuration, strings.TrimSpace(string(public))))
	u.m.Write("manifests/one.yaml", manifest("one", "", "count", "10ms"))
	u.m.Write("manifests/two.yaml", manifest("two", "    readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1, failureThreshold: 1}\n", "serve", ":8080"))
	u.m.StartAgent()
	u.ids = containers(u.m.WaitReady("one-edge", "two-edge"))
	u.bad = u.build("./test/badislet", "-C", filepath.Join(machine.Root(t), "test"), "./badislet")
	return u
}

// build is a program of this checkout.
func (u *updates) build(what string, args ...string) []byte {
	u.Helper()
	file := filepath.Join(u.TempDir(), "program")
	flags := []string{"build", "-trimpath", "-buildvcs=false", "-o", file}
	if args[0] == "-C" {
		flags = append([]string{"build", "-C", args[1]}, flags[1:]...)
		args = args[2:]
	}
	cmd := exec.Command("go", append(flags, args...)...)
	cmd.Dir = machine.Root(u)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		u.Fatalf("build %s: %v\n%s", what, err, out)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		u.Fatal(err)
	}
	return b
}

// archive packs a program as a version, signed, and gives the path.
func (u *updates) archive(version string, program []byte) string {
	u.Helper()
	return u.pack(version, runtime.GOARCH, u.key, program)
}

// pack is archive for an architecture, with the file of a key.
func (u *updates) pack(version, arch, key string, program []byte) string {
	u.Helper()
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	w := tar.NewWriter(z)
	if err := w.WriteHeader(&tar.Header{Name: "islet/islet", Size: int64(len(program)), Mode: 0o755, Typeflag: tar.TypeReg}); err != nil {
		u.Fatal(err)
	}
	w.Write(program)
	w.Close()
	z.Close()
	u.m.Write("islet.tar.gz", b.String())
	file := u.m.Disk + "/islet.tar.gz"
	if out, err := exec.Command(u.sign, "release", version, arch, file, key).CombinedOutput(); err != nil {
		u.Fatalf("sign: %v\n%s", err, out)
	}
	return file
}

// broken is a version that does not work.
func (u *updates) broken(how string) string {
	return u.archive("9.0.0", append(bytes.Clone(u.bad), "\n9.0.0 "+how...))
}

// as demands that a version runs, with the containers of before.
func (u *updates) as(version string) {
	u.Helper()
	if out, _ := u.m.Try("status"); !strings.Contains(out, "islet "+version+",") {
		u.Errorf("version %s does not run:\n%s", version, out)
	}
	unharmed(u.T, u.m, u.ids)
	left, err := filepath.Glob(filepath.Dir(u.m.Binary()) + "/*")
	if err != nil || len(left) != 1 {
		u.Errorf("next to the program lies %v, %v", left, err)
	}
}

// quickly are times of a trial that a test has.
const quickly = "configuration: {healthyFor: 2s, deadline: 15s}"

// TestUpdate: a version that works stays, with the same containers; what is wrong with others,
// and what is done, a person reads.
func TestUpdate(t *testing.T) {
	u := newUpdates(t, quickly)
	was := strings.Fields(u.m.Islet("version"))[1]
	u.as(was)
	next := u.build("the next version", "-tags", "grpcnotrace", "-ldflags", "-s -w -X main.version=9.1.0", ".")
	file := u.archive("9.1.0", next)
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
	if out, code := u.m.Try("update", u.m.Disk+"/none"); code != 1 || !strings.Contains(out, "no such file") {
		t.Errorf("code %d, %s", code, out)
	}
	if out, code := u.m.Try("update", "http://example.com/islet"); code != 1 || !strings.Contains(out, "only https") {
		t.Errorf("code %d, %s", code, out)
	}
	if out, code := u.m.Try("update", u.broken("crash")); code != 1 || !strings.Contains(out, "it is not newer") {
		t.Errorf("code %d, %s", code, out)
	}
}

// TestUpdateKilled: kill -9 of everything in the middle of a trial ends in the version of
// before.
func TestUpdateKilled(t *testing.T) {
	u := newUpdates(t, quickly)
	was := strings.Fields(u.m.Islet("version"))[1]
	u.m.Islet("update", "--no-wait", u.broken("hang"))
	u.m.Await("the trial", func() bool {
		for _, cmd := range u.m.Processes() {
			if strings.Contains(cmd, "islet") {
				if _, err := os.Stat(u.m.Disk + "/state/configuration.json"); err == nil {
					b, _ := os.ReadFile(u.m.Disk + "/state/configuration.json")
					return bytes.Contains(b, []byte(`"trial":{`))
				}
			}
		}
		return false
	})
	for pid, cmd := range u.m.Processes() {
		if !strings.Contains(cmd, "islet-shim") {
			syscall.Kill(pid, syscall.SIGKILL) //nolint:errcheck // it may have ended with its guard
		}
	}
	u.m.Lost()
	u.m.StartAgent()
	unharmed(t, u.m, u.ids)
	if out, _ := u.m.Try("status"); !strings.Contains(out, "islet "+was+",") {
		t.Errorf("version %s does not run:\n%s", was, out)
	}
}
