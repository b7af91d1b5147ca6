package seriestest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// updateVariable is the name of the environment variable that makes Compare write the recordings.
const updateVariable = "ISLET_UPDATE_SERIES"

// folder is the folder of the recordings, relative to the root of the repository.
const folder = "test/prometheus/testdata/series"

// A Recording is the text of the pages that a node serves one after the other.
type Recording struct {
	name string
	text strings.Builder
}

// New returns an empty Recording with the name of its file.
func New(name string) *Recording { return &Recording{name: name} }

// Scrape adds the metrics of the collectors. The duration is the time since the beginning of the recording, which is 2000-01-01, as in a
// synctest bubble. The text says what has happened.
func (r *Recording) Scrape(t testing.TB, at time.Duration, what string, collectors ...prometheus.Collector) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	for _, c := range collectors {
		if err := registry.Register(c); err != nil {
			t.Fatal(err)
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&r.text, "# at %s: %s\n", at, what)
	for _, f := range families {
		f.Help = nil
		if _, err := expfmt.MetricFamilyToText(&r.text, f); err != nil {
			t.Fatal(err)
		}
	}
}

// Compare checks that the stored recording is the same.
func (r *Recording) Compare(t testing.TB) {
	t.Helper()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; root != "/"; root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, folder)); err == nil {
			break
		}
	}
	file := filepath.Join(root, folder, r.name+".txt")
	if os.Getenv(updateVariable) != "" {
		if err := os.WriteFile(file, []byte(r.text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(file); err != nil || string(have) != r.text.String() {
		t.Errorf("%s is stale (%v): run the test with %s=1, and then TestAlerts in test/prometheus. The metrics are now\n%s",
			file, err, updateVariable, r.text.String())
	}
}
