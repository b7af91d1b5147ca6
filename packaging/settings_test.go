package packaging

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// formerKubelet is /etc/default/kubelet of version 0.1.0. It replaces the flags of other files by nothing.
const formerKubelet = "# Flags of islet in the kubelet's place; the last and strongest ones.\nKUBELET_EXTRA_ARGS=\n"

// TestFormerSettings checks that packaging/files has the checksum of each former content of the settings. If this test fails because
// shipped settings have changed, append their former checksum to the line in packaging/files, and replace it here. Otherwise nodes keep the
// former settings at an upgrade, also those that nobody has edited.
func TestFormerSettings(t *testing.T) {
	sums := map[string][]string{ // the last one is that of the shipped content
		"/etc/default/islet": {"37106e48e104a8896686aef6a022056891edd503230a0ba76845eafc2ebf1aeb"},
		"/etc/default/kubelet": {"aac001e33285fbf7683eb42d7004aec41b89644e8da2a87925ef4bda0d250e6d",
			"7cf8481cfebd60b16fdc6ae31c30c4fabf74eea8c25abc41fc268e8f7f2f48c8"},
		"/etc/crictl.yaml": {"d86a1ac27b2643e2c62e3d27f42afa62368de345b70e613d893a077fd83519f3"},
	}
	for _, line := range linesOf(t, "files") {
		f := strings.Fields(line)
		if strings.HasPrefix(line, "#") || len(f) < 5 || f[1] != "config" {
			continue
		}
		text, err := os.ReadFile(f[3])
		if got := append(f[5:], fmt.Sprintf("%x", sha256.Sum256(text))); err != nil || !slices.Equal(got, sums[f[4]]) {
			t.Errorf("%s: %q, want %q, %v", f[4], got, sums[f[4]], err)
		}
		delete(sums, f[4])
	}
	if len(sums) > 0 {
		t.Errorf("the table lacks %v", sums)
	}
}

// TestRenewedSettings checks that an upgrade by install.sh or by a package replaces former settings, unless an administrator has edited
// them, and that a purge of the package removes settings that nobody has edited.
func TestRenewedSettings(t *testing.T) {
	text, err := os.ReadFile("default/kubelet")
	if err != nil {
		t.Fatal(err)
	}
	shipped := string(text)
	const own = "KUBELET_EXTRA_ARGS=--v=3\n"
	for _, c := range []struct {
		before, after string // "" if there is no file
		isLink        bool
		isGone        bool // after a purge
	}{
		{formerKubelet, shipped, false, true}, {shipped, shipped, false, true}, {own, own, false, false},
		{formerKubelet + own, formerKubelet + own, false, false}, {formerKubelet, formerKubelet, true, false},
	} {
		put := func(dir string) string {
			file := filepath.Join(dir, "etc/default/kubelet")
			if c.isLink {
				write(t, file+".real", c.before, 0o644)
				if err := os.Symlink(file+".real", file); err != nil {
					t.Fatal(err)
				}
			} else {
				write(t, file, c.before, 0o644)
			}
			return file
		}
		check := func(how, file string) {
			t.Helper()
			info, err := os.Lstat(file)
			got, readErr := os.ReadFile(file)
			if err != nil || readErr != nil || string(got) != c.after || (info.Mode()&os.ModeSymlink != 0) != c.isLink {
				t.Errorf("%s: %q became %q: %v, %v, %v", how, c.before, got, info, err, readErr)
			}
		}
		root := t.TempDir()
		file := put(root)
		run(t, unpacked(t, "two"), root, "--kubeadm")
		check("install.sh", file)

		dir := t.TempDir()
		file = put(dir)
		script := fmt.Sprintf(". packages/scripts/common.sh\nput_setting() { install -m 0644 default/kubelet \"$1\"; }\n"+
			"settings='\n%s/none %x %[2]x\n%s %[2]x %[4]x'\n", dir, sha256.Sum256(text), file, sha256.Sum256([]byte(formerKubelet)))
		for _, step := range []string{"settings_renewed", "settings_gone"} {
			out, err := exec.Command("sh", "-euc", script+step).CombinedOutput()
			want := ""
			if step == "settings_renewed" && c.before != c.after {
				want = file + "\n"
			}
			if err != nil || string(out) != want {
				t.Errorf("%s of %q: %v, %q, want %q", step, c.before, err, out, want)
			}
			if step == "settings_renewed" {
				check(step, file)
			}
		}
		if _, err := os.Lstat(file); os.IsNotExist(err) != c.isGone {
			t.Errorf("after a purge of %q: %v", c.before, err)
		}
		if _, err := os.Lstat(filepath.Join(dir, "none")); err == nil {
			t.Error("settings that were deleted are there again")
		}
	}
}
