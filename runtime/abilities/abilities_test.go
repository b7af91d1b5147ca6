package abilities

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// program writes a shell script that acts as an OCI runtime, and returns its path.
func program(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "oci")
	write(t, path, script)
	return path
}

func write(t *testing.T, path, script string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// TestAnswers checks which abilities are recognized in the output of the program. The program may print nothing, or too much.
func TestAnswers(t *testing.T) {
	features := func(json string) string {
		return `[ "$1" = features ] || exit 1; cat <<'END'` + "\n" + json + "\nEND"
	}
	for name, c := range map[string]struct {
		script string
		want   Ability
	}{
		"all":                      {features(`{"mountOptions":["ro","rro"],"linux":{"namespaces":["pid","user"],"mountExtensions":{"idmap":{"enabled":true}}}}`), Ability{ReadOnlyTrees: true, Users: true}},
		"no user namespaces":       {features(`{"mountOptions":["rro"],"linux":{"namespaces":["pid"],"mountExtensions":{"idmap":{"enabled":true}}}}`), Ability{ReadOnlyTrees: true}},
		"no idmapped mounts":       {features(`{"mountOptions":["rro"],"linux":{"namespaces":["user"],"mountExtensions":{"idmap":{"enabled":false}}}}`), Ability{ReadOnlyTrees: true}},
		"idmapped mounts, unsaid":  {features(`{"linux":{"namespaces":["user"],"mountExtensions":{"idmap":{}}}}`), Ability{}},
		"runc 1.1":                 {features(`{"mountOptions":["ro","rro"],"linux":{"namespaces":["user"]}}`), Ability{ReadOnlyTrees: true}},
		"crun 1.21":                {features(`{"annotations":{"run.oci.crun.version":"1.21"}}`), Ability{Scheduling: true}},
		"crun 1.8":                 {features(`{"annotations":{"run.oci.crun.version":"1.8.7"}}`), Ability{}},
		"runc 1.2":                 {features(`{"annotations":{"org.opencontainers.runc.version":"1.2.0-rc.1"}}`), Ability{Scheduling: true}},
		"runc 1.1.15":              {features(`{"annotations":{"org.opencontainers.runc.version":"1.1.15"}}`), Ability{}},
		"gVisor":                   {features(`{"annotations":{"run.oci.crun.version":"new"}}`), Ability{}},
		"nothing":                  {features(`{}`), Ability{}},
		"null":                     {features(`{"mountOptions":null,"linux":null}`), Ability{}},
		"not JSON":                 {features(`rro idmap`), Ability{}},
		"another type":             {features(`{"mountOptions":"rro","linux":[]}`), Ability{}},
		"crun without the command": {`[ "$1" = features ] && exit 1; echo crun version 1.8.1`, Ability{ReadOnlyTrees: true}},
		"old crun":                 {`[ "$1" = features ] && exit 1; echo crun version 1.3`, Ability{}},
		"old runc":                 {`[ "$1" = features ] && exit 1; echo runc version 1.0.3`, Ability{}},
		"fails":                    {features(`{"mountOptions":["rro"]}`) + "\nexit 3", Ability{}},
		"without end":              {`[ "$1" = features ] || exit 1; while :; do echo '{"mountOptions":["rro"],'; done`, Ability{}},
		"long":                     {`[ "$1" = features ] || exit 1; echo '{"mountOptions":["rro"]}'; head -c 1048576 /dev/zero | tr '\0' ' '`, Ability{}},
	} {
		var k Cache
		if got := k.Get(program(t, c.script)); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	var k Cache
	if got := k.Get(filepath.Join(t.TempDir(), "none")); got != (Ability{}) {
		t.Errorf("a missing program: %+v", got)
	}
}

// TestAskedOnce checks that a program runs only once while its file stays the same. It runs again after the file has changed.
func TestAskedOnce(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "trace")
	script := func(options string) string {
		return "echo asked >>" + trace + "; echo '{\"mountOptions\":[" + options + "]}'"
	}
	runs := func() int {
		b, _ := os.ReadFile(trace)
		return strings.Count(string(b), "asked")
	}
	path := program(t, script(`"rro"`))
	var k Cache
	for range 3 {
		if !k.Get(path).ReadOnlyTrees {
			t.Fatal("the ability is missing")
		}
	}
	if n := runs(); n != 1 {
		t.Errorf("the program was run %d times", n)
	}
	write(t, path, script(""))
	if k.Get(path).ReadOnlyTrees {
		t.Error("the abilities of the old program are returned")
	}
	write(t, path, script(`"rro"`)) // the new file has the same size
	if err := os.Chtimes(path, time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if !k.Get(path).ReadOnlyTrees || runs() != 3 {
		t.Errorf("the program was run %d times", runs())
	}
}

// TestLate checks a program that has exceeded the timeout. It runs again after retryDelay.
func TestLate(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	path := program(t, "[ -e "+ready+" ] || exec sleep 1000; echo '{\"mountOptions\":[\"rro\"]}'")
	k := Cache{timeout: 100 * time.Millisecond}
	if got := k.Get(path); got != (Ability{}) {
		t.Errorf("a program that hangs: %+v", got)
	}
	k.timeout = 0
	write(t, ready, "")
	if got := k.Get(path); got != (Ability{}) {
		t.Errorf("the program was run again at once: %+v", got)
	}
	entry := k.entries[path]
	if left := time.Until(entry.expires); left <= 0 || left > retryDelay {
		t.Errorf("the program will be run again in %v", left)
	}
	entry.expires = time.Now().Add(-time.Second)
	k.entries[path] = entry
	if !k.Get(path).ReadOnlyTrees || !k.entries[path].expires.IsZero() {
		t.Errorf("the new result is not used: %+v", k.entries[path])
	}
}

func TestKernel(t *testing.T) {
	if !Kernel(2, 6) || Kernel(999, 0) {
		t.Error("wrong kernel version")
	}
}
