package probe

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestMetrics(t *testing.T) {
	bubble(t, pod(withLiveness(withPeriod(1)), withReadiness()), func(w *world) {
		w.advanceTime(3 * time.Second)
		w.answer(livePort, errRefused)
		w.advanceTime(time.Second)
		registry := prometheus.NewRegistry()
		registry.MustRegister(w.probes)
		all, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, family := range all {
			for _, m := range family.Metric {
				var labels []string
				for _, l := range m.Label {
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
				got = append(got, fmt.Sprint(family.GetName(), " ", strings.Join(labels, ","), " ", m.GetCounter().GetValue(), " ",
					m.GetHistogram().GetSampleCount(), " ", m.GetHistogram().GetBucket()))
			}
		}
		text := strings.Join(got, "\n")
		for _, want := range []string{
			"prober_probe_total container=c,namespace=default,pod=web,pod_uid=u,probe_type=Liveness,result=successful 3 ",
			"prober_probe_total container=c,namespace=default,pod=web,pod_uid=u,probe_type=Liveness,result=failed 1 ",
			"prober_probe_total container=c,namespace=default,pod=web,pod_uid=u,probe_type=Readiness,result=successful 1 ",
			"prober_probe_duration_seconds container=c,namespace=default,pod=web,probe_type=Liveness 0 3 ",
			"prober_probe_duration_seconds container=c,namespace=default,pod=web,probe_type=Readiness 0 1 ",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("no %s in\n%s", want, text)
			}
		}
		if len(got) != 5 {
			t.Errorf("%d series:\n%s", len(got), text)
		}
	})
}

func TestCounts(t *testing.T) {
	var c counts
	for _, took := range []time.Duration{0, 5 * time.Millisecond, 6 * time.Millisecond, 10 * time.Second, time.Minute} {
		c.add(passedVerdict, took)
	}
	c.add(failedVerdict, time.Second)
	if c.passed != 5 || c.failed != 1 || c.byDuration[0] != 2 || c.byDuration[1] != 1 || c.byDuration[len(buckets)-1] != 1 || c.seconds < 70 ||
		c.seconds > 70.1 {
		t.Errorf("%+v", c)
	}
}
