package objects_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/cli"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/kubelet/server"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	rules "github.com/islet-edge/islet/edge/check"
	"github.com/islet-edge/islet/internal/finding"
)

// checker returns an environment for islet check, whose URLs have the given content.
func checker(stdin string, out, errw io.Writer, urls map[string]string) command.Env {
	e := env(nil, strings.NewReader(stdin), out, errw)
	e.Check = rules.Rules{}.Check
	e.Fetch = func(_ context.Context, url string) ([]byte, error) {
		if text, ok := urls[url]; ok {
			return []byte(text), nil
		}
		return nil, errors.New("no such URL")
	}
	return e
}

const goodPod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - {name: web, image: web:1}\n"

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	good := write("good.yaml", goodPod)
	bad := write("\x1b[2Jbad.yaml", strings.NewReplacer("web:1}", "web:1, prots: []}", "{name: web}", "{name: bad}").Replace(goodPod))
	latest := write("latest.txt", strings.NewReplacer("web:1", "web", "{name: web}", "{name: latest}").Replace(goodPod))
	const unknown = `DIR/?[2Jbad.yaml:6: error: spec.containers[0].prots: unknown field: did you mean "ports"?` + "\n"
	const moving = `DIR/latest.txt:6: warning: pod "latest": spec.containers[0].image: "web" may be another image at each start of the container: give it a version as its tag` + "\n"
	urls := map[string]string{"https://user:hidden@example.com/web.yaml": goodPod}
	for _, c := range []struct {
		args  []string
		stdin string
		code  int
		out   string
		err   string
	}{
		{[]string{good}, "", 0, "1 file with 1 pod: 0 errors, 0 warnings\n", ""},
		{[]string{"-q", good, good}, "", 0, "", ""},
		{[]string{"-f", bad}, "", 1, unknown + "1 file with 1 pod: 1 error, 0 warnings\n", ""},
		{[]string{dir}, "", 1, unknown + "2 files with 2 pods: 1 error, 0 warnings\n", ""},
		{[]string{latest}, "", 0, moving + "1 file with 1 pod: 0 errors, 1 warning\n", ""},
		{[]string{"--strict", "-q", latest}, "", 1, moving, ""},
		{[]string{"-"}, "a: b", 1, "standard input:1: error: kind: Required value: this must be a Pod, ConfigMap, Secret or PersistentVolumeClaim\n1 file: 1 error, 0 warnings\n", ""},
		{[]string{"https://user:hidden@example.com/web.yaml"}, "", 0, "1 file with 1 pod: 0 errors, 0 warnings\n", ""},
		{[]string{"http://user:hidden@example.com/none"}, "", 1, "", "islet: fetch http://user:xxxxx@example.com/none: no such URL\n"},
		{[]string{filepath.Join(dir, "none")}, "", command.ExitNotFound, "", "islet: no file DIR/none\n"},
		{nil, "", command.ExitUsage, "", "islet: check needs a file, a directory or a URL: islet check FILE\n"},
		{[]string{"-o", "xml", good}, "", command.ExitUsage, "", "islet: output \"xml\": must be json or yaml\n"},
		{[]string{"/dev/zero"}, "", 1, "/dev/zero: error: is larger than 3145728 bytes\n1 file: 1 error, 0 warnings\n", ""},
	} {
		var out, errw bytes.Buffer
		code := cli.Main(t.Context(), append([]string{"check"}, c.args...), checker(c.stdin, &out, &errw, urls))
		got := result{Out: strings.ReplaceAll(out.String(), dir, "DIR"), Err: strings.ReplaceAll(errw.String(), dir, "DIR"), Code: code}
		if want := (result{Out: c.out, Err: c.err, Code: c.code}); got != want {
			t.Errorf("%q:\ngot  %+v\nwant %+v", c.args, got, want)
		}
	}
	var out bytes.Buffer
	code := cli.Main(t.Context(), []string{"check", "-o", "json", bad, latest}, checker("", &out, io.Discard, nil))
	var r finding.Report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || code != 1 || r.Files != 2 || r.Errors != 1 || r.Warnings != 1 ||
		len(r.Findings) != 2 ||
		r.Findings[0] != (finding.Finding{File: bad, Line: 6, Severity: "error", Field: "spec.containers[0].prots", Message: `unknown field: did you mean "ports"?`}) {
		t.Errorf("code %d, %v: %s", code, err, out.String())
	}
}

// TestCheckBounds checks that the number of files and their size are limited.
func TestCheckBounds(t *testing.T) {
	many, large := t.TempDir(), t.TempDir()
	for i := range 2000 + 1 {
		os.WriteFile(filepath.Join(many, strings.Repeat("a", i%200)+string(rune('a'+i/200))+".yaml"), nil, 0o600)
	}
	for i := range 5 {
		name := filepath.Join(large, string(rune('a'+i))+".yaml")
		os.WriteFile(name, nil, 0o600)
		os.Truncate(name, 16<<20)
	}
	for _, dir := range []string{many, large} {
		var errw bytes.Buffer
		if code := cli.Main(t.Context(), []string{"check", dir}, checker("", io.Discard, &errw, nil)); code != 1 ||
			errw.String() != "islet: too many files: at most 2000 with 64 MiB are checked at once\n" {
			t.Errorf("code %d, %.200q", code, errw.String())
		}
	}
}

// TestApplyWarns checks that apply warns about a manifest that the agent accepts although its pod cannot run, and only about such mistakes.
func TestApplyWarns(t *testing.T) {
	n, _ := startNode(t)
	for limit, want := range map[string]string{
		"64Mi": "",
		"512m": `standard input:6: warning: pod "web": spec.containers[0].resources.limits[memory]: ` +
			"512m is 0.512 bytes, because m means thousandths: did you mean 512Mi?\n",
	} {
		var out, errw bytes.Buffer
		limited := strings.Replace(goodPod, "image: web:1", "image: web:1, resources: {limits: {memory: "+limit+"}}", 1)
		e := env(n, strings.NewReader(limited), &out, &errw)
		e.Check = rules.Rules{}.Check
		if code := cli.Main(t.Context(), []string{"apply", "-f", "-"}, e); code != 0 || errw.String() != want || !strings.HasPrefix(out.String(), "pod/web ") {
			t.Errorf("%s: code %d, %q, %q", limit, code, out.String(), errw.String())
		}
	}
}

// TestDryRunChecks checks that a dry run applies the rules of islet check, and that it knows the node's state, such as its images. A
// manifest with an error makes the dry run fail.
func TestDryRunChecks(t *testing.T) {
	n, _ := startNode(t)
	dry := func(stdin string) result {
		var out, errw bytes.Buffer
		e := env(n, strings.NewReader(stdin), &out, &errw)
		e.Check = rules.Rules{}.Check
		code := cli.Main(t.Context(), []string{"apply", "--dry-run", "-f", "-"}, e)
		return result{Out: out.String(), Err: errw.String(), Code: code}
	}
	before := len(n.List())
	got := dry(goodPod)
	if want := `standard input:6: warning: pod "web": spec.containers[0].image: "web:1" is not on this node: it is pulled when the pod starts` + "\n"; got.Err != want ||
		got.Code != 0 || got.Out != "pod/web created (dry run)\n" {
		t.Errorf("%+v", got)
	}
	if got := dry(strings.Replace(goodPod, "image: web:1", "image: Web", 1)); got.Code != 1 || got.Out != "" ||
		!strings.Contains(got.Err, ":6: error: ") {
		t.Errorf("%+v", got)
	}
	if got := dry("apiVersion: islet.dev/v1beta1\nkind: EdgeConfiguration\n"); got.Code != 1 || !strings.Contains(got.Err, "islet config apply --dry-run") {
		t.Errorf("%+v", got)
	}
	if len(n.List()) != before {
		t.Error("a dry run must not apply")
	}
}

// TestDryRunRejection checks that a dry run fails for a pod that the node would reject.
func TestDryRunRejection(t *testing.T) {
	n, _ := servertest.Start(t, func(c *server.Config) {
		c.FindRejections = func(pods []*v1.Pod) []string { return []string{"OutOfcpu: Node didn't have enough resource: cpu\x1b"} }
	})
	check(t, n, run(t, n, goodPod, "apply", "--dry-run", "-f", "-"), 1, "",
		"islet: pod/web: the node would reject this pod: OutOfcpu: Node didn't have enough resource: cpu?\n")
	check(t, n, run(t, n, goodPod, "apply", "-f", "-"), 0, "pod/web created\n", "")
}

// TestNoRegularFile checks that a FIFO in a directory of manifests is an error, and that commands do not wait for its writer.
func TestNoRegularFile(t *testing.T) {
	n, _ := startNode(t)
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "pipe.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"apply", "-f", dir}, {"apply", "--dry-run", "-f", dir}, {"delete", "-f", dir}, {"check", dir}} {
		var errw bytes.Buffer
		e := env(n, strings.NewReader(""), io.Discard, &errw)
		e.Check = rules.Rules{}.Check
		if code := cli.Main(t.Context(), args, e); code != 1 || !strings.Contains(errw.String(), "pipe.yaml is not a regular file") {
			t.Errorf("%q: code %d, %s", args, code, errw.String())
		}
	}
}

// TestApplyWithoutAgent checks that a missing agent is reported once, and not for each manifest.
func TestApplyWithoutAgent(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.yaml", "b.yaml"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(goodPod), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	missing := &servertest.Node{Socket: filepath.Join(dir, "none")}
	for _, args := range [][]string{{"apply", "-f", dir}, {"delete", "-f", dir}} {
		if got := run(t, missing, "", args...); got.Code != command.ExitUnreachable || strings.Count(got.Err, "\n") != 1 {
			t.Errorf("%q: %+v", args, got)
		}
	}
}
