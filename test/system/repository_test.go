package system

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// TestRepository checks that apt installs without a network from the signed directory of make repo. It must reject a changed index, a
// changed package and another signing key.
func TestRepository(t *testing.T) {
	s := packaged(t, Systemd, "deb", 1)
	repo := filepath.Join(s.Dir, "payload/repo")
	if out := machine.Repository(t, packages(t, false), repo, "URL=file:///payload/repo"); !strings.Contains(out, "do not publish it") {
		t.Errorf("there is no warning about the trial key: %s", out)
	}
	if _, err := os.Stat(filepath.Join(repo, "trial-key")); err == nil {
		t.Error("the repository contains the private key")
	}
	s.Run("rm -f /etc/apt/sources.list && cp /payload/repo/islet.sources /etc/apt/sources.list.d/")
	s.Run("apt-get update && apt-get install -y islet")
	waitForPods(s, 1)
	s.Run("apt-get install -y islet-kubelet islet-cni && systemctl is-active islet-cri.service && dpkg -s islet-kubelet islet-cni islet | grep -c '^Status: install ok installed' | grep -qx 3")
	s.Run("apt-get purge -y islet-kubelet islet-cni islet && ! test -e /usr/bin/islet")

	for _, c := range []struct {
		name   string
		change func(repo string)
	}{
		{"a changed index", func(repo string) {
			index := filepath.Join(repo, "apt/dists/stable/main/binary-amd64/Packages")
			text := read(t, index)
			changed := strings.Replace(text, "Version: 0", "Version: 9", 1)
			if err := errors.Join(os.WriteFile(index, []byte(changed), 0o644), os.Remove(index+".gz")); err != nil || changed == text {
				t.Fatal("the index was not changed", err)
			}
		}},
		{"a changed package", func(repo string) {
			found, err := filepath.Glob(filepath.Join(repo, "apt/pool/islet_*_amd64.deb"))
			if err != nil || len(found) != 1 {
				t.Fatal(found, err)
			}
			text := []byte(read(t, found[0]))
			text[len(text)-1] ^= 1 // the size stays the same
			if err := os.WriteFile(found[0], text, 0o644); err != nil {
				t.Fatal(err)
			}
		}},
		{"another key", func(repo string) {
			mine := read(t, filepath.Join(repo, "islet.gpg"))
			other := filepath.Join(t.TempDir(), "other/repo")
			machine.Repository(t, packages(t, false), other)
			if out, err := exec.Command("cp", "-rT", other, repo).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if read(t, filepath.Join(repo, "islet.gpg")) == mine {
				t.Fatal("the other key is the same")
			}
			if err := os.WriteFile(filepath.Join(repo, "islet.gpg"), []byte(mine), 0o644); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		machine.Repository(t, packages(t, false), repo, "URL=file:///payload/repo")
		c.change(repo)
		// The command deletes apt's cached files, because they would be sufficient for the installation.
		if out, code := s.Try(
			"rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb && apt-get update && apt-get install -y islet"); code == 0 {
			t.Errorf("apt installed from a repository with %s:\n%s", c.name, out)
		}
		s.Run("! test -e /usr/bin/islet")
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
