package apparmor

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDefault: the profile names itself and its manager, uses AppArmor's own files only
// where they are, and AppArmor's parser takes it where there is one.
func TestDefault(t *testing.T) {
	dir := t.TempDir()
	label := filepath.Join(dir, "current")
	if got := inspect(dir, label); got != (settings{manager: "unconfined"}) {
		t.Errorf("a bare host: %+v", got)
	}
	for _, name := range []string{"abi/3.0", "tunables/global", "abstractions/base"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(label, []byte("islet-agent (enforce)\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	full := inspect(dir, label)
	if full != (settings{true, true, true, "islet-agent"}) {
		t.Errorf("a whole host: %+v", full)
	}
	bare := profile("p", settings{manager: "unconfined"})
	if strings.Contains(bare, "#include") || strings.Contains(bare, "abi <") || !strings.Contains(bare, "@{PROC}=/proc/\nprofile p ") {
		t.Errorf("for a bare host:\n%s", bare)
	}
	for _, want := range []string{"abi <abi/3.0>,\n", "#include <tunables/global>\n", "#include <abstractions/base>\n", "signal (receive) peer=islet-agent,\n", "deny mount,\n", "deny @{PROC}/kcore rwklx,\n"} {
		if !strings.Contains(profile("p", full), want) {
			t.Errorf("no %q", want)
		}
	}
	parser, err := exec.LookPath("apparmor_parser")
	if err != nil {
		t.Log("AppArmor's parser is not here: the syntax was not checked")
		return
	}
	cmd := exec.Command(parser, "--skip-kernel-load", "--skip-cache")
	cmd.Stdin = strings.NewReader(profile("p", inspect("/etc/apparmor.d", label)))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
