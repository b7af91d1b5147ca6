package packaging

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// demoTree returns a directory with run.sh. The script finds programs only in the folder "path" of this directory: fake build tools, and
// links to the real utilities. The fake make writes its begin and its end to the file "log". In between it waits until the file "go-on"
// exists.
func demoTree(t *testing.T) (dir string, start func(args ...string) (*exec.Cmd, *bytes.Buffer)) {
	t.Helper()
	dir = t.TempDir()
	copied(t, "demo/run.sh", filepath.Join(dir, "packaging/demo/run.sh"))
	write(t, filepath.Join(dir, "packaging/oci/build.sh"), "#!/bin/sh\nexit ${CACHED:-0}\n", 0o755)
	write(t, filepath.Join(dir, "bin/islet"), "built before", 0o755)
	write(t, filepath.Join(dir, "packaging/oci/for-run.sh"), "#!/bin/sh\n", 0o755)
	write(t, filepath.Join(dir, "packaging/demo/node.sh"), "#!/bin/sh\n[ $1 = idle ] && exit\necho node $1 $ISLET_DEMO_LOCKED >>$LOG\nsleep 600 >/dev/null 2>&1 &\necho $! >>$LOG.pids\n", 0o755)
	write(t, filepath.Join(dir, "path/make"), "#!/bin/sh\necho begin >>$LOG\nuntil [ -e ${LOG%/*}/go-on ]; do sleep 0.05; done\necho end >>$LOG\n", 0o755)
	write(t, filepath.Join(dir, "path/go"), "#!/bin/sh\n[ $1 = list ] && { [ -z \"$BROKEN$GOPROXY\" ] || { echo no such host >&2; exit 1; }; }\necho /tmp\n", 0o755)
	write(t, filepath.Join(dir, "path/gcc"), "#!/bin/sh\nexit ${GCC:-0}\n", 0o755)
	write(t, filepath.Join(dir, "path/git"), "#!/bin/sh\n", 0o755)
	for _, program := range []string{"sh", "id", "df", "awk", "mktemp", "rm", "dirname", "mkdir", "flock", "date", "sleep", "tail"} {
		path, err := exec.LookPath(program)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, "path", program)); err != nil {
			t.Fatal(err)
		}
	}
	return dir, func(args ...string) (*exec.Cmd, *bytes.Buffer) {
		out := &bytes.Buffer{}
		cmd := exec.CommandContext(t.Context(), "/bin/sh", append([]string{filepath.Join(dir, "packaging/demo/run.sh"), "amd64"}, args...)...)
		cmd.Env = []string{"PATH=" + dir + "/path", "LOG=" + dir + "/log", "ISLET_DEMO_RUN=" + dir + "/run/demo", "TMPDIR=" + dir}
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, out, 10*time.Second
		return cmd, out
	}
}

// TestRunChecks checks that `make run` names everything that it lacks before it compiles anything.
func TestRunChecks(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for name, c := range map[string]struct {
		env  []string
		gone []string
		want []string // texts of the output; nil if nothing is missing
		told string   // a text of the output of a run that goes on
	}{
		"nothing missing":   {told: ""},
		"no runtime built":  {env: []string{"CACHED=1"}},
		"no headers":        {env: []string{"CACHED=1", "GCC=1"}, want: []string{"install gcc, make, git and libc6-dev"}},
		"no compiler":       {env: []string{"CACHED=1"}, gone: []string{"gcc"}, want: []string{"install gcc, make, git and libc6-dev"}},
		"no git or patch":   {env: []string{"CACHED=1"}, gone: []string{"git"}, want: []string{"install gcc, make, git and libc6-dev"}},
		"patch, no git":     {env: []string{"CACHED=1"}, gone: []string{"+patch", "git"}},
		"several":           {env: []string{"CACHED=1"}, gone: []string{"gcc", "go", "flock"}, want: []string{"install gcc", "Go is not in the PATH", "flock is missing"}},
		"modules to fetch":  {told: "downloading Go modules, about 300 MB"},
		"no network":        {env: []string{"BROKEN=1"}, want: []string{"no such host", "could not be downloaded", "GOPROXY"}},
		"the machine's own": {env: []string{"CACHED=1", "GCC=1"}, gone: []string{"+crun"}, told: "/path/crun of this machine starts the containers"},
		"no room":           {gone: []string{"+df"}, want: []string{"only 7 MiB are free in /var/lib", "the build needs about 500"}},
	} {
		dir, start := demoTree(t)
		for _, program := range c.gone {
			if more, ok := strings.CutPrefix(program, "+"); ok {
				os.Remove(filepath.Join(dir, "path", more))
				write(t, filepath.Join(dir, "path", more), "#!/bin/sh\necho x\necho x 1 1 8000 1\n", 0o755)
				continue
			}
			if err := os.Remove(filepath.Join(dir, "path", program)); err != nil {
				t.Fatal(err)
			}
		}
		cmd, out := start("check")
		cmd.Env = append(cmd.Env, c.env...)
		if err := cmd.Run(); (err != nil) != (c.want != nil) || !strings.Contains(out.String(), c.told) {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		for _, want := range c.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: %q is not in: %s", name, want, out)
			}
		}
		if log, err := os.ReadFile(filepath.Join(dir, "log")); err == nil {
			t.Errorf("%s: it compiled: %s", name, log)
		}
	}
}

// waitFor waits until a file contains a text.
func waitFor(t *testing.T, file, want string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for {
		if text, _ := os.ReadFile(file); strings.Contains(string(text), want) {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%q is not in %s", want, file)
		}
	}
}

// TestRunTwice starts the command `make run` twice at the same time. The second one must report that it waits, and compile only after the
// first one has ended. The node must not keep the lock.
func TestRunTwice(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir, start := demoTree(t)
	log := filepath.Join(dir, "log")
	t.Cleanup(func() {
		pids, _ := os.ReadFile(log + ".pids")
		exec.CommandContext(context.Background(), "kill", strings.Fields(string(pids))...).Run()
	})
	first, firstOut := start()
	second, _ := start()
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, log, "begin\n")
	said := filepath.Join(dir, "said")
	f, err := os.Create(said)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	second.Stdout, second.Stderr = f, f
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, said, "waiting for it")
	write(t, filepath.Join(dir, "go-on"), "", 0o644)
	if err := first.Wait(); err != nil || !strings.Contains(firstOut.String(), "[1/3] compiling") ||
		!strings.Contains(firstOut.String(), "minutes") {
		t.Errorf("%v: %s", err, firstOut)
	}
	if err := second.Wait(); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(log); err != nil || string(text) != strings.Repeat("begin\nend\nnode start yes\n", 2) {
		t.Errorf("%v: %s", err, text)
	}
	if out, err := exec.Command("flock", "-n", dir+"/run/demo.lock", "true").CombinedOutput(); err != nil {
		t.Errorf("the lock is still held: %v: %s", err, out)
	}
}

// TestLinkOfRuntime checks that the link to the OCI runtime is replaced in one step, because a node may use it meanwhile.
func TestLinkOfRuntime(t *testing.T) {
	dir := t.TempDir()
	copied(t, "oci/for-run.sh", filepath.Join(dir, "oci/for-run.sh"))
	write(t, filepath.Join(dir, "oci/build.sh"), "#!/bin/sh\necho /built\n", 0o755)
	link := filepath.Join(dir, "out/crun")
	renew := func() {
		if out, err := exec.Command(filepath.Join(dir, "oci/for-run.sh"), filepath.Join(dir, "out"), "amd64").CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
	renew()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 20 {
			renew()
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		if target, err := os.Readlink(link); err != nil || target != "/built" {
			t.Fatalf("%q, %v", target, err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(dir, "out")); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}
