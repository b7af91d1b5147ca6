package selfcheck

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/agent/change/update"
)

// TestConfiguration checks that the self-test fails if the agent uses a feature gate or flag that this program does not know. The error
// names the gate or flag. The check is skipped for a program that no agent has staged.
func TestConfiguration(t *testing.T) {
	const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	for name, c := range map[string]struct {
		self, file string
		args       []string
		says       string
	}{
		"fits":                   {"islet-0.2.0.new", head + "maxPods: 9\n", nil, ""},
		"removed gate":           {"islet-0.2.0.new", head + "featureGates: {SidecarContainers: true}\n", nil, "featureGates[SidecarContainers]"},
		"removed flag":           {"islet-0.2.0.new", head, []string{"--containerd=/run/x"}, "unknown flag: --containerd"},
		"not staged by an agent": {"islet", head + "featureGates: {SidecarContainers: true}\n", nil, ""},
		"another command":        {"islet-0.2.0.new", head, []string{"agent"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Chdir(dir)
			agent := filepath.Join(dir, "proc")
			args := append(c.args, "--hostname-override=n", "--config=k.yaml", "--state-dir="+filepath.Join(dir, "state"))
			for _, err := range []error{
				os.Mkdir(agent, 0o700), os.Symlink(filepath.Join(dir, "islet"), filepath.Join(agent, "exe")), os.Symlink(dir, filepath.Join(agent, "cwd")),
				os.WriteFile(filepath.Join(agent, "cmdline"), []byte("islet\x00"+strings.Join(args, "\x00")+"\x00"), 0o600),
				os.WriteFile(filepath.Join(dir, "k.yaml"), []byte(c.file), 0o600),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			err := checkConfiguration(filepath.Join(dir, c.self), agent)
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("says %v, want %q", err, c.says)
			}
			if err != nil && exitCode(err) != update.UnfitExit {
				t.Errorf("%v: exit code %d", err, exitCode(err))
			}
			if err := os.Remove(filepath.Join(dir, "k.yaml")); err != nil {
				t.Fatal(err)
			}
			if err := checkConfiguration(filepath.Join(dir, "islet-0.2.0.new"), agent); err == nil || c.says == "" && exitCode(err) != 1 {
				t.Errorf("without the file: %v, exit code %d", err, exitCode(err))
			}
		})
	}
}
