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

// suiteDir is where the suites' programs lie and the results go.
func suiteDir(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("ISLET_CONFORMANCE")
	if dir == "" {
		t.Skip("make conformance builds the suites and runs this test")
	}
	return dir
}

// Which specs run where nothing else is asked for: those that every cluster and every node
// has to pass, but for those that want the cluster to themselves or wait for many minutes.
const (
	defaultFocus = `\[(Node)?Conformance\]`
	defaultSkip  = `\[Serial\]|\[Disruptive\]|\[Slow\]|\[Flaky\]`
)

// TestSuite runs Kubernetes' own end-to-end specs, unchanged, against two nodes. All pass
// but those that cannot: first those that may run beside others, then one by one those that
// want the cluster to themselves.
func TestSuite(t *testing.T) {
	dir := suiteDir(t)
	c, _ := start(t, dir, images(), func(n *cluster.Node) { n.Join() })
	suite(t, c, dir, "conformance", defaultFocus, defaultSkip)
}

// suite runs those end-to-end specs that the environment asks for, or else focus and skip.
func suite(t *testing.T, c *cluster.Cluster, dir, name, focus, skip string) {
	t.Helper()
	focus, skip = cmp.Or(os.Getenv("ISLET_CONFORMANCE_FOCUS"), focus), cmp.Or(os.Getenv("ISLET_CONFORMANCE_SKIP"), skip)
	run := c.AdminCommand("KUBECONFIG", "KUBERNETES_CONFORMANCE_TEST=y", "GOPROXY=off", filepath.Join(dir, "ginkgo"))
	run.Args = append(run.Args, ginkgo(t, dir, name, focus, skip)...)
	run.Args = append(run.Args, filepath.Join(dir, "e2e.test"), "--", "--provider=skeleton", "--num-nodes=2",
		"--allowed-not-ready-nodes=0", "--kubectl-path="+filepath.Join(dir, "../controlplane/kubectl"))
	conclude(t, dir, name, run)
}

// ginkgo are the runner's flags, whatever the suite. Specs that want the cluster to
// themselves come after all others, alone. In a slice (ISLET_CONFORMANCE_SLICE, minutes)
// the specs of the list of results are left out.
func ginkgo(t *testing.T, dir, name, focus, skip string) []string {
	t.Helper()
	flags := []string{"--procs=" + cmp.Or(os.Getenv("ISLET_CONFORMANCE_PROCS"), "8"), "--silence-skips", "--no-color", "--timeout=" + cmp.Or(os.Getenv(slice), "170") + "m", "--poll-progress-after=3m",
		"--focus=" + focus, "--skip=" + skip, "--json-report=" + filepath.Join(dir, name+".json")}
	if os.Getenv(slice) != "" {
		flags = append(flags, done(load(t, filepath.Join(dir, name+".txt")))...)
	}
	return flags
}

// slice names the variable that says how many minutes a part of a run may take.
const slice = "ISLET_CONFORMANCE_SLICE"

// done are the runner's flags that leave out what has a result.
func done(r results) (flags []string) {
	for name := range r {
		flags = append(flags, "--skip="+regexp.QuoteMeta(" "+name)+"$")
	}
	return flags
}

// conclude runs a suite and judges its report, together with what earlier slices came to.
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
	t.Logf("%d specs were to run, %d of them are left; in all %d passed, %d cannot, %d failed: see %s", wanted, left,
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
