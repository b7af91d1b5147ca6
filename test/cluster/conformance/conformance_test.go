package conformance

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	c, _ := start(t, dir)
	focus, skip := cmp.Or(os.Getenv("ISLET_CONFORMANCE_FOCUS"), defaultFocus), cmp.Or(os.Getenv("ISLET_CONFORMANCE_SKIP"), defaultSkip)
	run := c.AdminCommand("KUBECONFIG", "KUBERNETES_CONFORMANCE_TEST=y", "GOPROXY=off", filepath.Join(dir, "ginkgo"))
	run.Args = append(run.Args, ginkgo(dir, "conformance", focus, skip)...)
	run.Args = append(run.Args, filepath.Join(dir, "e2e.test"), "--", "--provider=skeleton", "--num-nodes=2", "--allowed-not-ready-nodes=0", "--kubectl-path="+filepath.Join(dir, "../controlplane/kubectl"))
	conclude(t, dir, "conformance", run)
}

// ginkgo are the runner's flags, whatever the suite. Specs that want the cluster to
// themselves come after all others, alone.
func ginkgo(dir, name, focus, skip string) []string {
	return []string{"--procs=" + cmp.Or(os.Getenv("ISLET_CONFORMANCE_PROCS"), "8"), "--silence-skips", "--no-color", "--timeout=170m", "--poll-progress-after=3m",
		"--focus=" + focus, "--skip=" + skip, "--junit-report=" + filepath.Join(dir, name+".xml")}
}

// conclude runs a suite and judges its report.
func conclude(t *testing.T, dir, name string, run *exec.Cmd) {
	t.Helper()
	log, junit := create(t, dir, name+".log"), filepath.Join(dir, name+".xml")
	must(t, os.RemoveAll(junit))
	run.Stdout, run.Stderr = log, log
	ended := run.Run()
	report, err := os.ReadFile(junit)
	if err != nil {
		t.Fatalf("the suite has no report (%v, %v): see %s", ended, err, log.Name())
	}
	count := judge(t, report, filepath.Join(dir, name+".txt"))
	if count.passed == 0 {
		t.Errorf("no spec passed: %v, see %s", ended, log.Name())
	}
	t.Logf("%d specs passed, %d cannot, %d failed: see %s", count.passed, count.cannot, count.failed, fmt.Sprintf("%s/%s.{txt,log}", dir, name))
}

func create(t *testing.T, dir, name string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, name))
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}
