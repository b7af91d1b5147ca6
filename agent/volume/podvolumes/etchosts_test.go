package podvolumes

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

func TestEtcHosts(t *testing.T) {
	v := volumes(t)
	p := podWith()
	if mounts, err := mountsOf(t, v, p); err != nil || len(mounts) != 0 {
		t.Errorf("without addresses: %v, %v", mounts, err)
	}
	p.Status.PodIPs = []v1.PodIP{{IP: "10.1.2.3"}, {IP: "fd00::3"}}
	p.Spec.HostAliases = []v1.HostAlias{{IP: "1.2.3.4", Hostnames: []string{"a", "b"}}}
	mounts, err := mountsOf(t, v, p)
	if err != nil || len(mounts) != 1 || mounts[0].ContainerPath != "/etc/hosts" {
		t.Fatalf("%v, %v", mounts, err)
	}
	read := func() string {
		b, err := os.ReadFile(mounts[0].HostPath)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, want := range []string{"# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n", "\n10.1.2.3\tweb\nfd00::3\tweb\n", "\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n"} {
		if !strings.Contains(read(), want) {
			t.Errorf("no %q in:\n%s", want, read())
		}
	}
	p.Spec.Subdomain = "web.sub.default.svc.cluster.local"
	if _, err := mountsOf(t, v, p); err != nil || !strings.Contains(read(), "\n10.1.2.3\tweb.sub.default.svc.cluster.local\tweb\n") {
		t.Errorf("%v:\n%s", err, read())
	}
	p.Spec.HostNetwork = true
	if _, err := mountsOf(t, v, p); err != nil || !strings.HasPrefix(read(), "# Kubernetes-managed hosts file (host network).\n") {
		t.Errorf("%v:\n%s", err, read())
	}
	own := v1.VolumeMount{Name: "data", MountPath: "/etc/hosts"}
	p.Spec.Volumes = []v1.Volume{emptyDirVolume("data", "")}
	if mounts, err := mountsOf(t, v, p, own); err != nil || len(mounts) != 1 ||
		mounts[0].HostPath == filepath.Join(v.podDir("u1"), "etc-hosts") {
		t.Errorf("%v, %v", mounts, err)
	}
}

// TestHostileHosts checks that /etc/hosts is restored after a container has changed or replaced it.
func TestHostileHosts(t *testing.T) {
	v := volumes(t)
	p := podWith()
	p.Status.PodIPs = []v1.PodIP{{IP: "10.0.0.1"}}
	if _, err := mountsOf(t, v, p); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(v.podDir("u1"), "etc-hosts")
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func() error{
		"huge":   func() error { return os.Truncate(path, 1<<40) },
		"longer": func() error { return os.WriteFile(path, append(slices.Clone(want), "x"...), 0o644) },
		"other":  func() error { return os.WriteFile(path, make([]byte, len(want)), 0o644) },
		"FIFO":   func() error { os.Remove(path); return unix.Mkfifo(path, 0o600) },
		"link":   func() error { os.Remove(path); return os.Symlink("/dev/zero", path) },
	} {
		if err := spoil(); err != nil {
			t.Logf("%s: %v", name, err) // some file systems do not support a terabyte
			continue
		}
		if _, err := mountsOf(t, v, p); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if fi, err := os.Lstat(path); err != nil || !fi.Mode().IsRegular() || fi.Size() != int64(len(want)) {
			t.Fatalf("%s: %v, %v", name, fi, err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != string(want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
