package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/agent/host/process"
	"github.com/islet-edge/islet/internal/config"
)

// TestCleanupRefuses checks that cleanup rejects a state or run directory that does not belong to islet, and leaves the files in it
// unchanged.
func TestCleanupRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		files []string // a file's text follows "="
		want  string   // "" if cleanup accepts the directories
		used  bool
	}{
		"nothing there":              {nil, "", false},
		"images only":                {[]string{"state/images/a.tar"}, "", false},
		"an agent's":                 {[]string{"state/islet.db", "run/lock=islet\n", "run/ns/x"}, "", true},
		"after a reboot":             {[]string{"state/islet.db"}, "", true},
		"the state was lost":         {[]string{"run/lock=islet\n"}, "", true},
		"the database was deleted":   {[]string{"state/store.key=0123456789abcdef0123456789abcdef", "state/lock", "state/containerd/x"}, "", true},
		"a sealed key":               {[]string{`state/store.key={"version": 1}`, "state/lock", "state/containerd/x"}, "", true},
		"the key of another program": {[]string{"state/store.key=-----BEGIN", "state/x", "run/lock=islet\n"}, "give the --state-dir", false},
		"all but the lock":           {[]string{"state/lock=islet\n", "state/claims/x"}, "", true},
		"another's lock and files":   {[]string{"state/lock=4711\n", "state/x", "run/lock=islet\n"}, "give the --state-dir", false},
		"an early agent's":           {[]string{"state/islet.db", "run/lock", "run/sandboxes/x", "run/oci/x"}, "", true},
		"another state directory":    {[]string{"state/passwd", "run/lock=islet\n"}, "give the --state-dir", false},
		"another run directory":      {[]string{"state/islet.db", "run/sshd.pid"}, "give the --run-dir", false},
		"another's lock":             {[]string{"state/islet.db", "run/lock=4711\n"}, "give the --run-dir", false},
		"another's lock of our size": {[]string{"state/islet.db", "run/lock=123456"}, "give the --run-dir", false},
		"an empty lock":              {[]string{"state/islet.db", "run/lock", "run/x"}, "give the --run-dir", false},
		"a directory called lock":    {[]string{"state/islet.db", "run/lock/x", "run/sandboxes/x", "run/oci/x"}, "give the --run-dir", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, f := range tt.files {
				path, text, _ := strings.Cut(f, "=")
				path = filepath.Join(dir, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			used, err := process.DirsUsed(config.Dirs{State: dir + "/state", Run: dir + "/run"})
			if tt.want == "" && (err != nil || used != tt.used) {
				t.Errorf("used %v, %v", used, err)
			}
			if tt.want == "" {
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v", err)
			}
			var said bytes.Buffer
			code := Cleanup(t.Context(), []string{"--state-dir=" + dir + "/state", "--run-dir=" + dir + "/run", "--root-dir=" + dir + "/root"}, nil, &said)
			if code != 1 || !strings.Contains(said.String(), tt.want) {
				t.Errorf("cleanup: %d, %s", code, said.String())
			}
			for _, f := range tt.files {
				path, _, _ := strings.Cut(f, "=")
				if _, err := os.Stat(filepath.Join(dir, path)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
