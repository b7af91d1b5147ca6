package cli

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/agent/api"
)

// TestTraffic: rates are over the time between two measurements, and nothing is said where
// there are not two, or counters began anew.
func TestTraffic(t *testing.T) {
	at := time.Unix(1000, 0)
	network := func(after time.Duration, in, out uint64) *stats.NetworkStats {
		return &stats.NetworkStats{Time: metav1.NewTime(at.Add(after)), InterfaceStats: stats.InterfaceStats{RxBytes: &in, TxBytes: &out}}
	}
	c := &topCommand{output: "wide"}
	sum := &stats.Summary{Pods: []stats.PodStats{{PodRef: stats.PodReference{UID: "a"}, Network: network(0, 1000, 500)}}}
	sum.Node.Network = network(0, 0, 0)
	if !c.rates(sum) || (&topCommand{output: "json"}).rates(sum) {
		t.Error("a second measurement is not asked for when it is needed")
	}
	for _, x := range []struct {
		uid  string
		n    *stats.NetworkStats
		want []string
	}{
		{"a", network(2*time.Second, 1000+4096, 700), []string{"2.0KiB", "100B"}}, {"", network(time.Second, 10, 0), []string{"10B", "0B"}},
		{"a", network(0, 1000, 500), []string{"-", "-"}}, {"a", network(time.Second, 1, 500), []string{"-", "-"}}, {"b", network(time.Second, 1, 1), []string{"-", "-"}}, {"a", nil, []string{"-", "-"}},
	} {
		if got := c.perSecond(x.uid, x.n); !slices.Equal(got, x.want) {
			t.Errorf("%s: %q, want %q", x.uid, got, x.want)
		}
	}
}

func TestBoardLines(t *testing.T) {
	got := boardLines(api.Board{Temperatures: []api.Temperature{{Name: "cpu-thermal", Celsius: 61.234}}, Power: []string{"under-voltage"}, PowerSinceBoot: []string{"under-voltage", "throttled"}, MHz: 600, MaxMHz: 1800})
	want := []string{"temperature: cpu-thermal 61.2°C", "frequency:   600 MHz of 1800", "power:       under-voltage now", "since boot:  under-voltage, throttled"}
	if !slices.Equal(got, want) || len(boardLines(api.Board{})) != 0 {
		t.Errorf("%q", got)
	}
}
