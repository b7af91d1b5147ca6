package packaging

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestInstallBelow checks an installation below DESTDIR with systemd and with OpenRC. The installation enables the same service as an
// installation on this machine. The command uninstall removes the links of the service.
func TestInstallBelow(t *testing.T) {
	const systemd, kubelet, openrc = "/etc/systemd/system/multi-user.target.wants/islet.service",
		"/etc/systemd/system/multi-user.target.wants/kubelet.service", "/etc/runlevels/default/islet"
	archive := unpacked(t, "one")
	for _, c := range []struct {
		name   string
		openrc bool
		args   []string
		links  map[string]string
	}{
		{"systemd", false, nil, map[string]string{systemd: "/etc/systemd/system/islet.service"}},
		{"OpenRC", true, nil, map[string]string{systemd: "/etc/systemd/system/islet.service", openrc: "/etc/init.d/islet"}},
		{"not enabled", true, []string{"--no-start"}, nil},
		{"kubeadm", false, []string{"--kubeadm"}, map[string]string{kubelet: "/etc/systemd/system/kubelet.service"}},
	} {
		root := t.TempDir()
		if c.openrc {
			write(t, filepath.Join(root, "sbin/openrc-run"), "#!/bin/sh\n", 0o755)
		}
		before := tree(t, root)
		check := func(when string) {
			t.Helper()
			files := tree(t, root)
			for _, link := range []string{systemd, kubelet, openrc} {
				if files[link] != c.links[link] {
					t.Errorf("%s, %s: %s is %q, want %q", c.name, when, link, files[link], c.links[link])
				}
				if target := c.links[link]; target != "" && files[target] == "" {
					t.Errorf("%s, %s: %s leads nowhere", c.name, when, link)
				}
			}
		}
		out := run(t, archive, root, c.args...)
		check("installed")
		if boots := strings.Contains(out, "starts when that system boots"); boots != (c.links != nil) {
			t.Errorf("%s: %s", c.name, out)
		}
		if c.openrc {
			run(t, archive, root, c.args...)
			check("upgraded")
		}
		run(t, archive, root, "uninstall", "--purge")
		if after := tree(t, root); !same(before, after) {
			t.Errorf("%s: left over: %v", c.name, after)
		}
	}
	root := t.TempDir()
	run(t, archive, root)
	run(t, archive, root, "--kubeadm")
	if files := tree(t, root); files[systemd] != "" || files[kubelet] == "" {
		t.Errorf("a node that becomes one for kubeadm: %q", files)
	}
	if systemctl, err := exec.LookPath("systemctl"); err == nil { // it needs no running systemd for another root
		if out, err := exec.Command(systemctl, "--root="+root, "is-enabled", "kubelet.service").CombinedOutput(); err != nil ||
			strings.TrimSpace(string(out)) != "enabled" {
			t.Errorf("is-enabled: %v: %s", err, out)
		}
	}
}

// TestInstallConfig checks that the option --config puts islet.yaml on the boot partition of an image, and that it needs a file.
func TestInstallConfig(t *testing.T) {
	root, archive, dir := t.TempDir(), unpacked(t, "one"), t.TempDir()
	file := filepath.Join(dir, "my islet.yaml")
	write(t, file, "kind: BoardSetup", 0o644)
	run(t, archive, root, "--config", file)
	if got := tree(t, root)["/boot/islet.yaml"]; got != "-rw------- kind: BoardSetup" {
		t.Errorf("got %q", got)
	}
	write(t, filepath.Join(root, "boot/firmware/config.txt"), "", 0o644)
	run(t, archive, root, "--config="+file, archive)
	if got := tree(t, root)["/boot/firmware/islet.yaml"]; got != "-rw------- kind: BoardSetup" {
		t.Errorf("got %q", got)
	}
	for want, args := range map[string][]string{
		"--config needs a file": {"--config"}, "is not a file": {"--config", dir}, "--config is for": {"--config", file, "--kubeadm"},
	} {
		below := t.TempDir()
		out, err := try(exec.Command("sh", append([]string{filepath.Join(archive, "install.sh")}, args...)...), "DESTDIR="+below)
		if err == nil || !strings.Contains(out, want) || len(tree(t, below)) > 0 {
			t.Errorf("%q: %v: %s", args, err, out)
		}
	}
	// Credentials that were made from the file do not outlive the node.
	write(t, filepath.Join(root, "etc/islet/flags"), "# From /boot/islet.yaml, by islet setup. Change that file instead.\n", 0o600)
	write(t, filepath.Join(root, "etc/islet/kubeconfig"), "key", 0o600)
	run(t, archive, root, "uninstall", "--purge")
	if files := tree(t, root); files["/etc/islet/flags"]+files["/etc/islet/kubeconfig"] != "" {
		t.Errorf("left over: %v", files)
	}
}
