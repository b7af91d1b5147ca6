package selinux

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/selinux/go-selinux"
	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// enforcing returns a Host that works without SELinux. Its labels are those of Fedora's policy.
func enforcing() *Host {
	return &Host{
		enabled: func() bool { return true },
		init: func(options []string) (string, string, error) {
			p, err1 := selinux.NewContext("system_u:system_r:container_t:s0:c1,c2")
			f, err2 := selinux.NewContext("system_u:object_r:container_file_t:s0:c1,c2")
			for _, o := range options {
				k, v, _ := strings.Cut(o, ":")
				p[k] = v
				if k == "level" || k == "user" {
					f[k] = v
				}
			}
			return p.Get(), f.Get(), errors.Join(err1, err2)
		},
	}
}

func TestLabels(t *testing.T) {
	off := New()
	off.enabled = func() bool { return false }
	bare := enforcing()
	bare.init = func([]string) (string, string, error) { return "", "", nil }
	for name, c := range map[string]struct {
		host       *Host
		requested  *api.SELinuxOption
		privileged bool
		want       Labels
		fails      string
	}{
		"off, nothing requested": {host: off},
		"off, no options":        {host: off, requested: &api.SELinuxOption{}},
		"off, unconfined":        {host: off, requested: &api.SELinuxOption{Type: "spc_t"}},
		"off, type":              {host: off, requested: &api.SELinuxOption{Type: "container_t"}, fails: "not enabled"},
		"off, level":             {host: off, requested: &api.SELinuxOption{Level: "s0:c3,c4"}},
		"off, level and type":    {host: off, requested: &api.SELinuxOption{Type: "t", Level: "s0"}, fails: "not enabled"},
		"no policy":              {host: bare, requested: &api.SELinuxOption{Type: "container_t"}, fails: "container-selinux"},
		"on, nothing requested":  {host: enforcing()},
		"on, type": {host: enforcing(), requested: &api.SELinuxOption{Type: "my_t"},
			want: Labels{"system_u:system_r:my_t:s0:c7,c8", "system_u:object_r:container_file_t:s0:c7,c8"}},
		"on, level": {host: enforcing(), requested: &api.SELinuxOption{Level: "s0:c3,c4"},
			want: Labels{"system_u:system_r:container_t:s0:c3,c4", "system_u:object_r:container_file_t:s0:c3,c4"}},
		"on, all": {host: enforcing(), requested: &api.SELinuxOption{User: "u", Role: "r", Type: "t", Level: "s1"},
			want: Labels{"u:r:t:s1", "u:object_r:container_file_t:s1"}},
		"on, unconfined": {host: enforcing(), requested: &api.SELinuxOption{Type: "spc_t"},
			want: Labels{"system_u:system_r:spc_t:s0:c7,c8", "system_u:object_r:container_file_t:s0:c7,c8"}},
		"on, privileged": {host: enforcing(), privileged: true, requested: &api.SELinuxOption{Type: "my_t"},
			want: Labels{"", "system_u:object_r:container_file_t:s0:c7,c8"}},
		"no level": {host: enforcing(), requested: &api.SELinuxOption{Level: `s0",rw`}, fails: "not well-formed"},
	} {
		got, err := c.host.Labels(&api.LinuxContainerSecurityContext{SelinuxOptions: c.requested, Privileged: c.privileged}, "s0:c7,c8")
		if got != c.want || (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestNamesInMountOptions checks that the seLinuxOptions of a pod cannot add a mount option, and cannot add a field to a label.
func TestNamesInMountOptions(t *testing.T) {
	for _, name := range []string{
		`u",suid,dev,x="`, `u\",suid,x=\"`, "u,suid", `u"`, `u\`, "u:object_r:etc_t", "u\nv", "u\x00v", "u v", "é",
	} {
		for _, o := range []*api.SELinuxOption{{User: name}, {Role: name}, {Type: name}, {Level: name}} {
			got, err := enforcing().Labels(&api.LinuxContainerSecurityContext{SelinuxOptions: o}, "s0:c7,c8")
			if err == nil {
				t.Errorf("%v: the label is %+v, and the option %s", o, got, MountOption(got.File))
			}
		}
	}
	names := &api.SELinuxOption{User: "system_u", Role: "a.b-c", Type: "My_t2"}
	if _, err := enforcing().Labels(&api.LinuxContainerSecurityContext{SelinuxOptions: names}, ""); err != nil {
		t.Error(err)
	}
}

func TestLevel(t *testing.T) {
	off := New()
	off.enabled = func() bool { return false }
	if l := off.AllocateLevel(); l != "" {
		t.Errorf("without SELinux the level is %q", l)
	}
	if l := enforcing().AllocateLevel(); l != "s0:c1,c2" {
		t.Errorf("the level is %q", l)
	}
}

// marking returns a Host that works without SELinux. It stores labels in another extended attribute.
func marking() *Host {
	const attribute = "trusted.islet-test"
	return &Host{
		get: func(path string) (string, error) {
			b := make([]byte, 100)
			n, err := unix.Getxattr(path, attribute, b)
			return string(b[:max(n, 0)]), err
		},
		set: func(path, label string) error { return unix.Setxattr(path, attribute, []byte(label), 0) },
	}
}

// TestRelabel checks that each file of a volume gets the label. Symlinks are not followed.
func TestRelabel(t *testing.T) {
	h := marking()
	top := t.TempDir()
	at := func(name string) string { return filepath.Join(top, name) }
	if err := errors.Join(os.MkdirAll(at("v/deep/deeper"), 0o755), os.Mkdir(at("out"), 0o755), os.WriteFile(at("out/secret"), nil, 0o600),
		os.WriteFile(at("v/deep/file"), nil, 0o600), unix.Mkfifo(at("v/fifo"), 0o600), os.Symlink("../out", at("v/link")),
		os.Symlink("../../out/secret", at("v/deep/link"))); err != nil {
		t.Fatal(err)
	}
	if err := h.set(top, "x"); err != nil {
		t.Skip("trusted extended attributes are not supported:", err)
	}
	label := func(name string) string {
		b := make([]byte, 100)
		n, _ := unix.Lgetxattr(at(name), "trusted.islet-test", b)
		return string(b[:max(n, 0)])
	}
	if err := h.Relabel(at("v"), "l"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"v": "l", "v/deep": "l", "v/deep/deeper": "l", "v/deep/file": "l", "v/fifo": "l", "v/link": "l", "v/deep/link": "l", "out": "", "out/secret": "", ".": "x",
	} {
		if got := label(name); got != want {
			t.Errorf("%s has label %q", name, got)
		}
	}
	if err := os.WriteFile(at("v/new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.Relabel(at("v"), "l"); err != nil || label("new") != "" {
		t.Errorf("a labelled tree was labelled again: %v", err)
	}
	if err := h.Relabel(at("v"), ""); err != nil || label("v") != "l" {
		t.Errorf("without a label: %v, %q", err, label("v"))
	}
}

// TestRelabelDeep checks that directories deeper than maxDepth are an error.
func TestRelabelDeep(t *testing.T) {
	h := marking()
	dir := filepath.Join(t.TempDir(), "v")
	if err := os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", maxDepth+1)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := h.set(dir, "x"); err != nil {
		t.Skip(err)
	}
	if err := h.Relabel(dir, "l"); err == nil || !strings.Contains(err.Error(), "nested more than") {
		t.Errorf("got %v", err)
	}
}
