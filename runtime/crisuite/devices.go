package crisuite

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Major and minor number of /dev/kmsg, the log of the kernel, which containers cannot use by
// default. The tests only open the device.
const logMajor, logMinor = 1, 11

// createDevice creates a device node that every user of the host may use, so that only the device rules
// of a container's cgroup restrict access.
func (b *bench) createDevice(name string) string {
	b.Helper()
	path := filepath.Join(b.logs, name)
	err := unix.Mknod(path, unix.S_IFCHR, int(unix.Mkdev(logMajor, logMinor)))
	if err == nil {
		err = os.Chmod(path, 0o666)
	}
	if errors.Is(err, unix.EPERM) {
		b.Skip("device nodes cannot be created")
	}
	if err != nil {
		b.Fatal(err)
	}
	return path
}

// testDevices checks that a container can use only the devices of its configuration, and
// has no other permissions for these devices than the configured ones.
func testDevices(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	host := b.createDevice("log")
	for name, c := range map[string]struct {
		permissions string
		open        bool
	}{"none": {"", false}, "read": {"r", false}, "write": {"w", true}, "all": {"mrw", true}} {
		ctr := b.containerConfig(name, "opens", "/dev/mine")
		if c.permissions == "" {
			ctr.Args = []string{"node", "/tmp-log", fmt.Sprint(logMajor), fmt.Sprint(logMinor), "opens", "/tmp-log"}
		} else {
			ctr.Devices = []*api.Device{{HostPath: host, ContainerPath: "/dev/mine", Permissions: c.permissions}}
		}
		if out, _ := b.runForOutput(pod, cfg, ctr); strings.Contains(out, "open: <nil>") != c.open {
			t.Errorf("%s: %q", name, out)
		}
	}
	ctr := b.containerConfig("missing", "print", "no")
	ctr.Devices = []*api.Device{{HostPath: "/dev/no such", ContainerPath: "/dev/mine", Permissions: "r"}}
	if err := b.tryCreate(pod, cfg, ctr); err == nil {
		t.Error("a container was created with a device that does not exist")
	}
}

// cdiSpec is a CDI specification, as device vendors write it.
const cdiSpec = `{
  "cdiVersion": "0.7.0",
  "kind": "example.com/log",
  "devices": [
    {"name": "0", "containerEdits": {"deviceNodes": [{"path": %q, "hostPath": %q, "permissions": "w"}], "env": ["WHICH=%s"]}},
    {"name": "all", "containerEdits": {"deviceNodes": [{"path": %q}]}}
  ],
  "containerEdits": {
    "env": ["EVERY=yes"], "additionalGids": [4242],
    "mounts": [{"hostPath": %q, "containerPath": "/vendor", "options": ["ro", "nosuid", "nodev", "bind"]}],
    "hooks": [{"hookName": "poststop", "path": %q, "args": ["mkdir", "-p", %q]}]
  }
}`

// testCDI checks that a container gets the edits of the CDI devices in its configuration or its
// annotations. If two directories define a device, the later directory takes precedence. An unknown
// device is an error. The hooks of a device run, also those after the end of the container.
func testCDI(t *testing.T, b *bench) {
	if len(b.CDI) == 0 {
		t.Skip("Subject.CDI is empty")
	}
	host, mine, vendor := b.createDevice("log"), "/dev/mine", t.TempDir()
	if err := os.Chmod(vendor, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(vendor, "lib"), []byte("vendor's"), 0o644); err != nil {
		t.Fatal(err)
	}
	ended := filepath.Join(vendor, "ended")
	mkdir, err := exec.LookPath("mkdir")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range b.CDI {
		path := filepath.Join(dir, "example.com-log.json")
		text := fmt.Sprintf(cdiSpec, mine, host, filepath.Base(dir), host, vendor, mkdir, ended)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(path) })
	}
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	args := []string{"opens", mine, "env", "WHICH", "env", "EVERY", "read", "/vendor/lib", "put", "/vendor/lib", "x", "id"}
	field := b.containerConfig("field", args...)
	field.CDIDevices = []*api.CDIDevice{{Name: "example.com/log=0"}}
	note := b.containerConfig("note", args...)
	note.Annotations["cdi.k8s.io/vendor_thing"] = "example.com/log=0"
	both := b.containerConfig("both", append([]string{"opens", host}, args...)...)
	both.CDIDevices = []*api.CDIDevice{{Name: "example.com/log=0"}, {Name: "example.com/log=all"}}
	both.Annotations["cdi.k8s.io/vendor_thing"] = "example.com/log=0"
	last := filepath.Base(b.CDI[len(b.CDI)-1])
	for _, c := range []*api.ContainerConfig{field, note, both} {
		out, _ := b.runForOutput(pod, cfg, c)
		want := "open: <nil>\n" + last + "\nyes\nvendor's\nput: open /vendor/lib: read-only file system\n"
		if !strings.Contains(out, want) || !strings.Contains(out, "4242") ||
			strings.Count(out, "open: <nil>") != max(1, len(c.CDIDevices)) {
			t.Errorf("%s: %q", c.Metadata.Name, out)
		}
		b.waitUntil("the poststop hook", func() bool { return os.Remove(ended) == nil })
	}
	for _, name := range []string{"example.com/log=1", "example.com/other=0", "nonsense"} {
		c := b.containerConfig("bad", "print", "no")
		c.CDIDevices = []*api.CDIDevice{{Name: name}}
		if err := b.tryCreate(pod, cfg, c); err == nil {
			t.Errorf("a container was created with %s", name)
		}
	}
}
