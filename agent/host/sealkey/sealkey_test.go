package sealkey

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/agent/host/process"
	"github.com/islet-edge/islet/edge/keyfile"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/ptytest"
)

// TestParse checks which arguments belong to the command, and that the others are passed to the agent's configuration.
func TestParse(t *testing.T) {
	good := filepath.Join(t.TempDir(), "key.pem")
	const pem = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"
	if err := os.WriteFile(good, []byte(pem), 0o600); err != nil {
		t.Fatal(err)
	}
	large := good + ".large"
	if err := os.WriteFile(large, []byte(pem+strings.Repeat("\n", maxPolicyKey)), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"seal":                                   "seal false [] 0 []",
		"seal --pcrs=11,7,7 --state-dir=/x":      "seal false [7 11] 0 [--state-dir=/x]",
		"seal --pcrs 0 --recovery":               "seal true [0] 0 []",
		"seal --policy-key=" + good:              "seal false [] 3 []",
		"unseal --recovery --pcrs=7":             "unseal true [] 0 [--pcrs=7]",
		"status --recovery":                      "status false [] 0 [--recovery]",
		"recipient --recovery --pcrs=7":          "recipient false [] 0 [--recovery --pcrs=7]",
		"":                                       "error",
		"open":                                   "error",
		"seal --pcrs=seven":                      "error",
		"seal --pcrs=-1":                         "error",
		"seal --pcrs=300":                        "error",
		"seal --pcrs":                            "error",
		"seal --policy-key=/dev/zero":            "error",
		"seal --policy-key=" + large:             "error",
		"seal --policy-key=" + good + ".missing": "error",
	} {
		c, err := parse(strings.Fields(line))
		got := fmt.Sprint(c.verb, " ", c.recovery, " ", c.request.PCRs, " ", len(c.request.PolicyKey), " ", c.agent)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q: %s (%v), want %s", line, got, err, want)
		}
	}
}

// TestShow checks that the recovery key is shown on a terminal, and that it counts as shown only after Enter.
func TestShow(t *testing.T) {
	for typed, shown := range map[string]bool{"noted\n": true, "\x04": false} { // Ctrl-D
		ours, theirs := ptytest.Open(t)
		if _, err := ours.WriteString(typed); err != nil {
			t.Fatal(err)
		}
		err := Env{Stdin: theirs, Stdout: theirs}.show("abcd-efgh")
		theirs.Close()
		var seen bytes.Buffer
		_, _ = seen.ReadFrom(ours) // the end of a terminal is an error
		if shown != (err == nil) || !strings.Contains(seen.String(), "    abcd-efgh\r\n") {
			t.Errorf("%q: %v, the terminal shows %q", typed, err, seen.String())
		}
	}
}

// TestExitCodes checks the exit codes, that no directory of another program is used, and that the recovery key is not written to a file.
func TestExitCodes(t *testing.T) {
	used := t.TempDir()
	place := keyfile.Place{Dir: used}
	if err := errors.Join(os.WriteFile(filepath.Join(used, "islet.db"), nil, 0o600), place.Make()); err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(place.Path())
	if err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(state, stdin string, args ...string) (code int, stdout, stderr string) {
		var out, errs bytes.Buffer
		code = Main(args, Env{Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs,
			Load: func([]string) (*config.Config, []config.Notice, error) {
				if state == "" {
					return nil, nil, errors.New("wrong flag")
				}
				c := &config.Config{Dirs: config.Dirs{State: state, Run: t.TempDir()}}
				c.Edge.TPM.Device = "/nowhere/tpm"
				return c, nil, nil
			}})
		return code, out.String(), errs.String()
	}
	for _, c := range []struct {
		state, stdin, args string
		code               int
	}{
		{used, "", "status", 0}, {used, "", "open", 2}, {"", "", "status", 2}, {t.TempDir(), "", "status", 1}, {other, "", "status", 1},
		{used, "", "seal", 2}, // the standard output is not a terminal
		{used, "", "unseal", 1}, {used, "", "unseal --recovery", 1}, {used, strings.Repeat("x", 4<<20), "unseal --recovery", 1},
	} {
		code, out, errs := run(c.state, c.stdin, strings.Fields(c.args)...)
		if code != c.code || (code == 0) != (errs == "") || code == 0 && out == "" {
			t.Errorf("%s: code %d, want %d, %q, %q", c.args, code, c.code, out, errs)
		}
	}
	if now, err := os.ReadFile(place.Path()); err != nil || !slices.Equal(now, key) {
		t.Error("the key was changed:", err)
	}
}

// TestAgentRuns checks that seal makes no key while an agent uses one of the directories, because a key may be in the agent's memory.
func TestAgentRuns(t *testing.T) {
	t.Parallel() // each attempt waits for the end of the agent
	state, run := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(state, process.Database), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	seal := func() string {
		_, theirs := ptytest.Open(t)
		var errs bytes.Buffer
		if code := Main([]string{"seal"}, Env{Stdin: theirs, Stdout: theirs, Stderr: &errs,
			Load: func([]string) (*config.Config, []config.Notice, error) {
				c := &config.Config{Dirs: config.Dirs{State: state, Run: run}}
				c.Edge.TPM.Device = "/nowhere/tpm"
				return c, nil, nil
			}}); code != 1 {
			t.Error(code)
		}
		return errs.String()
	}
	for _, dir := range []string{state, run} {
		locks, err := process.Lock(dir)
		if err != nil {
			t.Fatal(err)
		}
		if errs := seal(); !strings.Contains(errs, dir) || strings.Contains(errs, "/nowhere/tpm") {
			t.Errorf("while an agent uses %s: %s", dir, errs)
		}
		if err := locks.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if errs := seal(); !strings.Contains(errs, "/nowhere/tpm") {
		t.Errorf("while no agent runs, the TPM is not used: %s", errs)
	}
}

// TestStatus checks the exit code for each state of a key, and that a problem is printed in full.
func TestStatus(t *testing.T) {
	problem := errors.New("the reason and the advice")
	for what, c := range map[string]struct {
		status keyfile.Status
		want   []string
		fails  bool
	}{
		"none":    {keyfile.Status{}, []string{"state:   none"}, false},
		"plain":   {keyfile.Status{Exists: true}, []string{"state:   plain"}, false},
		"damaged": {keyfile.Status{Exists: true, Problem: problem}, nil, true},
		"sealed":  {keyfile.Status{Exists: true, Sealed: true}, []string{"/dev/tpm", "PCRs:    none", "this node", "opens:   yes"}, false},
		"with PCRs": {keyfile.Status{Exists: true, Sealed: true, PCRs: []uint{7, 11}, PolicyKey: "SHA256:x", Policy: "00ff"},
			[]string{"7,11", "SHA256:x", "/policies", "00ff"}, false},
		"closed": {keyfile.Status{Exists: true, Sealed: true, Problem: problem}, []string{"opens:   no"}, true},
		"copies": {keyfile.Status{Exists: true, Sealed: true, Copies: []string{"/copy"}}, []string{"opens:   yes"}, true},
	} {
		var out bytes.Buffer
		err := Env{Stdout: &out}.printStatus(c.status, keyfile.Place{TPM: "/dev/tpm", Policies: "/policies"})
		if (err != nil) != c.fails || c.status.Problem != nil && !errors.Is(err, problem) {
			t.Errorf("%s: %v", what, err)
		}
		for _, want := range c.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: %q lacks %q", what, out.String(), want)
			}
		}
	}
}
