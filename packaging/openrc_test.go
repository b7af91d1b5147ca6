package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestOpenRCFlags checks that islet setup gets the flags with which OpenRC starts the agent, also if they are on several lines. OpenRC
// evaluates command_args without quotes.
func TestOpenRCFlags(t *testing.T) {
	dir := t.TempDir()
	program, board := filepath.Join(dir, "islet"), filepath.Join(dir, "islet.yaml")
	write(t, program, "#!/bin/sh\nprintf '%s|' \"$@\"\n", 0o755)
	write(t, board, "", 0o600)
	script, err := os.ReadFile("openrc/islet.initd")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("/usr/local/bin/islet", program, "/boot/firmware/islet.yaml", board, "/etc/default/islet", dir+"/default").
		Replace(string(script))
	write(t, filepath.Join(dir, "initd"), text, 0o600)
	for flags, want := range map[string]string{
		"--v=2": "--v=2|", "--v=2\n--state-dir=/data\n": "--v=2|--state-dir=/data|", "": "",
		"--v=2\t--node-labels='a=b c'": "--v=2|--node-labels=a=b c|",
	} {
		for step, begin := range map[string]string{"start_pre": "setup|", `eval "$command" $command_args`: "agent|"} {
			out, err := try(exec.Command("sh", "-c", "checkpath() { :; }; yesno() { false; }; . "+dir+"/initd; "+step), "ISLET_ARGS="+flags)
			if begin == "agent|" && flags == "" {
				continue // the agent has default flags, which are not for islet setup
			}
			if err != nil || out != begin+want {
				t.Errorf("%q, %s: %q, want %q: %v", flags, step, out, begin+want, err)
			}
		}
	}
}

// TestOpenRCEnvironment checks that the agent gets the variables of /etc/default/islet from OpenRC, as it gets them from systemd.
func TestOpenRCEnvironment(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "islet")
	write(t, program, "#!/bin/sh\nprintf '%s|%s' \"$HTTPS_PROXY\" \"$OTHER\"\n", 0o755)
	write(t, filepath.Join(dir, "default"), "HTTPS_PROXY=http://proxy.example:3128\n", 0o600)
	script, err := os.ReadFile("openrc/islet.initd")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("/usr/local/bin/islet", program, "/etc/default/islet", dir+"/default").Replace(string(script))
	write(t, filepath.Join(dir, "initd"), text, 0o600)
	out, err := try(exec.Command("sh", "-c", "OTHER=x; . "+dir+`/initd; eval "$command" $command_args`))
	if want := "http://proxy.example:3128|"; err != nil || out != want {
		t.Errorf("%q, want %q: %v", out, want, err)
	}
}
