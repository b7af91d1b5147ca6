package machine

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	kubelet "k8s.io/kubelet/config/v1beta1"

	edgenode "github.com/islet-edge/islet/edge/node"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/eventtest"
)

func TestMain(m *testing.M) { os.Exit(eventtest.Main(m, "machine")) }

// TestNodeEvents checks that each change of the node causes one event. As with a kubelet, the first report of the conditions causes an
// event for each of them. The first value of schedulable is not a change.
func TestNodeEvents(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "islet.db"), log)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	resolv := ""
	var got []string // reasons
	var a *Reporter
	start := func() {
		events := eventtest.Sink(func(e eventtest.Event) { got = append(got, e.Reason) })
		a = NewReporter(ReporterConfig{Machine: &Machine{cfg: &config.Config{Node: config.Node{Name: "n"}, Kubelet: kubelet.KubeletConfiguration{ResolverConfig: &resolv}}}, Meta: s, Events: events, Log: log})
		a.Started(t.Context())
	}
	told := func(want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("events %v, not %v", got, want)
		}
		got = nil
	}
	start()
	told("Starting")
	start()
	told("Starting")
	if err := s.SetMeta(t.Context(), metaBoot, "another"); err != nil {
		t.Fatal(err)
	}
	start()
	told("Starting", "Rebooted")
	resolv = filepath.Join(t.TempDir(), "resolv.conf")
	start()
	told("Starting", "CheckLimitsForResolvConf") // the file does not exist
	if err := os.WriteFile(resolv, []byte("search a b c\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	start()
	told("Starting")

	start()
	for range 2 {
		a.reportConditions(&edgenode.Facts{NotReady: []string{"no network"}})
	}
	for range 2 {
		a.reportConditions(&edgenode.Facts{DiskPressure: true})
	}
	a.reportConditions(&edgenode.Facts{MemoryPressure: true, PIDPressure: true})
	a.reportConditions(&edgenode.Facts{DiskPressure: true})
	for _, yes := range []bool{false, false, true, true, false} {
		a.Schedulable(yes)
	}
	told("Starting", "NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID", "NodeNotReady",
		"NodeHasDiskPressure", "NodeReady",
		"NodeHasInsufficientMemory", "NodeHasNoDiskPressure", "NodeHasInsufficientPID",
		"NodeHasSufficientMemory", "NodeHasDiskPressure", "NodeHasSufficientPID",
		"NodeSchedulable", "NodeNotSchedulable")
}
