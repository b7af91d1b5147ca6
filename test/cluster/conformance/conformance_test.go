package conformance

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
)

func TestMain(m *testing.M) { cluster.Main(m) }

// suiteDir returns the directory of the suites' programs and results.
func suiteDir(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("ISLET_CONFORMANCE")
	if dir == "" {
		t.Skip("make conformance builds the suites and runs this test")
	}
	return dir
}

// The default selection contains the specs that every cluster and every node must pass. It excludes specs that must run alone and specs
// that take many minutes.
const (
	defaultFocus = `\[(Node)?Conformance\]`
	defaultSkip  = `\[Serial\]|\[Disruptive\]|\[Slow\]|\[Flaky\]`
)

// TestSuite runs Kubernetes' unchanged end-to-end specs against two nodes. All specs must pass except those with a reason in cannotPass.
// The serial specs run one by one after all others.
func TestSuite(t *testing.T) {
	dir := suiteDir(t)
	c, _ := start(t, dir, images(), func(n *cluster.Node) { n.Join() })
	suite(t, c, dir, "conformance", defaultFocus, defaultSkip)
}

// suite runs the specs that the environment variables select. Without these variables, focus and skip select the specs.
func suite(t *testing.T, c *cluster.Cluster, dir, name, focus, skip string) {
	t.Helper()
	focus, skip = cmp.Or(os.Getenv("ISLET_CONFORMANCE_FOCUS"), focus), cmp.Or(os.Getenv("ISLET_CONFORMANCE_SKIP"), skip)
	run := c.AdminCommand("KUBECONFIG", "KUBERNETES_CONFORMANCE_TEST=y", "GOPROXY=off", filepath.Join(dir, "ginkgo"))
	run.Args = append(run.Args, ginkgo(t, dir, name, focus, skip)...)
	run.Args = append(run.Args, filepath.Join(dir, "e2e.test"), "--", "--provider=skeleton", "--num-nodes=2",
		"--allowed-not-ready-nodes=0", "--kubectl-path="+filepath.Join(dir, "../controlplane/kubectl"))
	conclude(t, dir, name, run)
}

// ginkgo returns the runner's flags for all suites. The runner starts serial specs after all others. If ISLET_CONFORMANCE_SLICE limits the
// run to a number of minutes, the flags exclude specs that already have a result.
func ginkgo(t *testing.T, dir, name, focus, skip string) []string {
	t.Helper()
	flags := []string{"--procs=" + cmp.Or(os.Getenv("ISLET_CONFORMANCE_PROCS"), "8"), "--silence-skips", "--no-color", "--timeout=" + cmp.Or(os.Getenv(slice), "170") + "m", "--poll-progress-after=3m",
		"--focus=" + focus, "--skip=" + skip, "--json-report=" + filepath.Join(dir, name+".json")}
	if os.Getenv(slice) != "" {
		flags = append(flags, done(load(t, filepath.Join(dir, name+".txt")))...)
	}
	return flags
}

// slice is the environment variable that limits a run to a number of minutes.
const slice = "ISLET_CONFORMANCE_SLICE"

// done returns the runner's flags that exclude the specs with a result.
func done(r results) (flags []string) {
	for name := range r {
		flags = append(flags, "--skip="+regexp.QuoteMeta(" "+name)+"$")
	}
	return flags
}

// conclude runs a suite and evaluates its report together with the results of earlier slices.
func conclude(t *testing.T, dir, name string, run *exec.Cmd) {
	t.Helper()
	log, written, list := create(t, dir, name+".log"), filepath.Join(dir, name+".json"), filepath.Join(dir, name+".txt")
	must(t, os.RemoveAll(written))
	run.Stdout, run.Stderr = log, log
	ended := run.Run()
	text, err := os.ReadFile(written)
	if err != nil {
		t.Fatalf("the suite has no report (%v, %v): see %s", ended, err, log.Name())
	}
	all, sliced := results{}, os.Getenv(slice) != ""
	if sliced {
		all = load(t, list)
	}
	wanted, left := all.add(decode(t, text), func(name, text string) { t.Errorf("%s: %.3000s", name, text) })
	all.save(t, list)
	t.Logf("%d specs were selected, %d of them have no result; in total %d passed, %d cannot pass, %d failed: see %s", wanted, left,
		len(all.names(passed)), len(all.names(cannot)), len(all.names(failed)), fmt.Sprintf("%s/%s.{txt,log}", dir, name))
	switch {
	case left > 0 && !sliced:
		t.Errorf("%d specs have no result: %v", left, ended)
	case len(all.names(passed)) == 0:
		t.Errorf("no spec passed: %v", ended)
	}
	for _, name := range all.names(failed) {
		if left == 0 {
			t.Errorf("failed: %s", name)
		}
	}
}
