package server

import "testing"

// TestRuncPhrase checks that crun's error for a missing command is replaced by the error of runc.
func TestRuncPhrase(t *testing.T) {
	for msg, want := range map[string]string{
		"executable file `nope` not found in $PATH: No such file or directory": `exec: "nope": executable file not found in $PATH`,
		"executable file `no pe` not found in $PATH":                           `exec: "no pe": executable file not found in $PATH`,
		"executable file `/nope` not found: No such file or directory":         "executable file `/nope` not found: No such file or directory",
		`exec: "nope": executable file not found in $PATH`:                     `exec: "nope": executable file not found in $PATH`,
		"open `x`: Permission denied":                                          "open `x`: Permission denied",
	} {
		if got := runcPhrase(msg); got != want {
			t.Errorf("%q: %q", msg, got)
		}
	}
}
