package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSleeps checks that checkSleeps finds the sleeps in a test that are not in a synctest bubble.
func TestSleeps(t *testing.T) {
	const bubble = "func in(t *testing.T, f func()) { synctest.Test(t, func(*testing.T) { f() }) }\n"
	for name, c := range map[string]struct {
		body string
		want bool
	}{
		"in a test":                       {"func TestX(t *testing.T) {\ntime.Sleep(1)\n}", true},
		"with a reason":                   {"func TestX(t *testing.T) {\ntime.Sleep(1) // a reason\n}", false},
		"in a bubble":                     {"func TestX(t *testing.T) { synctest.Test(t, func(*testing.T) {\ntime.Sleep(1)\n}) }", false},
		"after a bubble":                  {"func TestX(t *testing.T) { synctest.Test(t, nil)\ntime.Sleep(1)\n}", true},
		"in the bubble of a helper":       {bubble + "func TestX(t *testing.T) { in(t, func() {\ntime.Sleep(1)\n}) }", false},
		"in what is called from a bubble": {bubble + "func TestX(t *testing.T) { in(t, func() { g() }) }\nfunc g() {\ntime.Sleep(1)\n}", false},
		"in what is called from a test":   {bubble + "func TestX(t *testing.T) { in(t, func() { g() }); g() }\nfunc g() {\ntime.Sleep(1)\n}", true},
		"in what a test passes on":        {"func TestX(t *testing.T) { t.Run(``, g) }\nfunc g(*testing.T) {\ntime.Sleep(1)\n}", true},
		"in a method":                     {"type w int\nfunc TestX(t *testing.T) { w(0).g() }\nfunc (w) g() {\ntime.Sleep(1)\n}", true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "x_test.go"), []byte("package x\n"+c.body+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := checkSleeps(dir)
			if err != nil {
				t.Fatal(err)
			}
			found := len(got) == 1 && strings.HasSuffix(got[0], ": a test sleeps: wait for an event")
			if found != c.want || !c.want && len(got) > 0 {
				t.Errorf("violations %q, want one: %v", got, c.want)
			}
		})
	}
}
