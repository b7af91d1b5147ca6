package unitfile

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestEnvironments checks files with variables. systemd and a shell read the same file in different ways. The values are also compared with
// those of the shell and of the systemd of this machine.
func TestEnvironments(t *testing.T) {
	for _, c := range []struct {
		text    string
		systemd string // of A, then of B
		shell   string
	}{
		{`A=--one`, "--one|", "--one|"},
		{`A=--one --two`, "--one --two|", "|"},
		{`A="--one --two"`, "--one --two|", "--one --two|"},
		{`A='--one --two'`, "--one --two|", "--one --two|"},
		{`A="--l='a=b c' --two"`, "--l='a=b c' --two|", "--l='a=b c' --two|"},
		{`A=--l='a=b c'`, "--l='a=b c'|", "--l=a=b c|"},
		{"A=--one\nA=\"$A --two\"", "$A --two|", "--one --two|"},
		{"A=1\nB=${A}x", "1|${A}x", "1|1x"},
		{`B="${A:---one --two}"`, "|${A:---one --two}", "|--one --two"},
		{`A=1 B=2`, "1 B=2|", "1|2"},
		{`A=1; B=2`, "1; B=2|", "1|2"},
		{`export A=1`, "|", "1|"},
		{`A=1 # comment`, "1 # comment|", "1|"},
		{`A=1#2`, "1#2|", "1#2|"},
		{"# comment \\\nA=1", "1|", "1|"},
		{"; A=1\nB=2", "|2", "1|2"},
		{"A=\"1\n2\"\nB=3", "1\n2|3", "1\n2|3"},
		{"A=1\\\n2\nB=3", "12|3", "12|3"},
		{`A="1\"2"`, `1"2|`, `1"2|`},
		{`A='1\2'`, `1\2|`, `1\2|`},
		{"  A=1  \nB=", "1|", "1|"},
		{"A = 1", "1|", "|"},
		{`A="1"'2'`, "12|", "12|"},
		{`A="1`, "1|", "|"}, // a shell has a syntax error
		{"A=1\r\nB=2\r\n", "1|2", "1\r|2\r"},
		{"no assignment\n=1\n1A=2\nB=3", "|3", "|3"},
		{"", "|", "|"},
	} {
		for _, p := range []struct {
			parse func(string, map[string]string)
			want  string
		}{{ParseEnvironment, c.systemd}, {ParseShell, c.shell}} {
			env := map[string]string{}
			p.parse(c.text, env)
			if got := env["A"] + "|" + env["B"]; got != p.want {
				t.Errorf("%q: %q, want %q", c.text, got, p.want)
			}
		}
		checkSystemd(t, c.text, c.systemd)
		if got, ok := sourced(t, c.text); ok && got != c.shell {
			t.Errorf("%q: a shell has %q, want %q", c.text, got, c.shell)
		}
	}
}

// sourced returns the variables A and B after a shell has sourced a text. It returns false if the text has a syntax error.
func sourced(t *testing.T, text string) (string, bool) {
	t.Helper()
	sh, err := exec.LookPath("sh")
	if err != nil {
		return "", false
	}
	file := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(sh, "-c", `. "$0"; printf '%s|%s' "$A" "$B"`, file)
	cmd.Env = []string{"PATH=/nonexistent"}
	out, err := cmd.Output()
	return string(out), err == nil
}

// checkSystemd compares the variables A and B of a text with those of the systemd of this machine, if it can evaluate conditions. systemd
// reads os-release like an EnvironmentFile. Before systemd 254, a backslash continues a comment.
func checkSystemd(t *testing.T, text, want string) {
	t.Helper()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil || strings.HasPrefix(text, "#") {
		return
	}
	file := filepath.Join(t.TempDir(), "os-release")
	hasValue := func(text, name, value string) bool {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(analyze, "condition", "ConditionOSRelease="+name+"="+strconv.Quote(value))
		cmd.Env = []string{"SYSTEMD_OS_RELEASE=" + file}
		return cmd.Run() == nil
	}
	if !hasValue("A=1\n", "A", "1") {
		return
	}
	a, b, _ := strings.Cut(want, "|")
	for name, value := range map[string]string{"A": a, "B": b} {
		// A condition cannot compare a missing variable, or a line break.
		if value != "" && !strings.Contains(value, "\n") && !hasValue(text, name, value) {
			t.Errorf("%q: systemd has another value of %s than %q", text, name, value)
		}
	}
}

// TestLargeEnvironments checks that values that refer to each other stay small, and that large files are read in time.
func TestLargeEnvironments(t *testing.T) {
	many, large := strings.Builder{}, strings.Repeat("x", MaxFile/4)
	many.WriteString("A=" + large + "\n")
	for i := range 10_000 {
		fmt.Fprintf(&many, "B%d=$A\n", i)
	}
	texts := []string{"A=xxxxxxxx\n" + strings.Repeat("A=$A$A\n", 1000), "A=" + strings.Repeat("$A", MaxFile/2),
		strings.Repeat("${", MaxFile/2),
		strings.Repeat("A="+strings.Repeat("${", maxExpanded/2-2)+"\n", MaxFile/maxExpanded), many.String(),
		strings.Repeat("\"", MaxFile+1), strings.Repeat("\\", MaxFile+1), strings.Repeat("A=\n", MaxFile/3)}
	for i, text := range texts {
		for _, parse := range []func(string, map[string]string){ParseEnvironment, ParseShell} {
			env, total := map[string]string{}, 0
			parse(text, env)
			for _, name := range slices.Sorted(maps.Keys(env)) {
				total += len(env[name])
			}
			if total > 3*MaxFile {
				t.Errorf("text %d: the values have %d bytes", i, total)
			}
		}
	}
	env := map[string]string{}
	ParseShell(many.String(), env)
	if env["B1"] != large || env["B9999"] != "${A}" {
		t.Errorf("a variable is lost: %.10q, %.10q", env["B1"], env["B9999"])
	}
}

// TestWords checks the separators of words for systemd, and those for a shell. The words are also compared with those of the shell of this
// machine.
func TestWords(t *testing.T) {
	for _, c := range []struct {
		text           string
		systemd, shell []string
	}{
		{"a\tb\nc d\n\n", []string{"a", "b", "c", "d"}, []string{"a", "b", "c", "d"}},
		{"a\r\nb\rc", []string{"a", "b", "c"}, []string{"a\r", "b\rc"}},
		{"'a b'\n\"c d\"", []string{"a b", "c d"}, []string{"a b", "c d"}},
		{" \n", nil, nil},
	} {
		if got := Words(c.text); !slices.Equal(got, c.systemd) {
			t.Errorf("%q: %q, want %q", c.text, got, c.systemd)
		}
		if got := ShellWords(c.text); !slices.Equal(got, c.shell) {
			t.Errorf("%q: a shell: %q, want %q", c.text, got, c.shell)
		}
		sh, err := exec.LookPath("sh")
		if err != nil {
			continue
		}
		// OpenRC evaluates command_args in this way.
		cmd := exec.Command(sh, "-c", `eval set -- $A; for word; do printf '%s|' "$word"; done`)
		cmd.Env = []string{"PATH=/nonexistent", "A=" + c.text}
		out, err := cmd.Output()
		if want := strings.Join(append(slices.Clone(c.shell), ""), "|"); err != nil || string(out) != want {
			t.Errorf("%q: the shell has %q, want %q: %v", c.text, out, want, err)
		}
	}
}
