package exposition

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// TestResource checks that the node, the pods and the containers have their measured figures with the time of the measurement. The text
// and the protobuf encoding must have the same content, also for several pages in a row. After an error the page must contain only the
// error metrics.
func TestResource(t *testing.T) {
	number := func(n uint64) *uint64 { return &n }
	at := metav1.NewTime(time.UnixMilli(5_000))
	cpu := func(n uint64) *stats.CPUStats { return &stats.CPUStats{Time: at, UsageCoreNanoSeconds: number(n)} }
	memory := &stats.MemoryStats{Time: at, WorkingSetBytes: number(77)}
	swap := &stats.SwapStats{Time: at, SwapUsageBytes: number(3), SwapAvailableBytes: number(4)}
	pods := []stats.PodStats{
		{PodRef: stats.PodReference{Name: "a", Namespace: "n"}, CPU: cpu(2e9), Memory: memory, Swap: swap, Containers: []stats.ContainerStats{
			{Name: "x", StartTime: metav1.NewTime(time.Unix(9, 0)), CPU: cpu(1e9), Memory: memory, Swap: swap}, {Name: "y", CPU: &stats.CPUStats{}}}},
		{PodRef: stats.PodReference{Name: "b", Namespace: "n"}},
	}
	look := &Summary{Node: stats.NodeStats{CPU: cpu(5e9)}, Pods: func(yield func(*stats.PodStats) bool) {
		var one stats.PodStats
		for _, one = range pods {
			if !yield(&one) {
				return
			}
		}
	}}
	page := func(accept string, err error) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		ServeResource(w, r, look, err)
		return w
	}
	const want = `# HELP container_cpu_usage_seconds_total CPU time used, in seconds of one core
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="x",namespace="n",pod="a"} 1 5000
# HELP container_memory_working_set_bytes working set: memory in use without inactive page cache
# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{container="x",namespace="n",pod="a"} 77 5000
# HELP container_start_time_seconds when the container started, since 1970
# TYPE container_start_time_seconds gauge
container_start_time_seconds{container="x",namespace="n",pod="a"} 9
# HELP container_swap_limit_bytes limit of swap
# TYPE container_swap_limit_bytes gauge
container_swap_limit_bytes{container="x",namespace="n",pod="a"} 7 5000
# HELP container_swap_usage_bytes swap in use
# TYPE container_swap_usage_bytes gauge
container_swap_usage_bytes{container="x",namespace="n",pod="a"} 3 5000
# HELP node_cpu_usage_seconds_total CPU time used, in seconds of one core
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 5 5000
# HELP pod_cpu_usage_seconds_total CPU time used, in seconds of one core
# TYPE pod_cpu_usage_seconds_total counter
pod_cpu_usage_seconds_total{namespace="n",pod="a"} 2 5000
# HELP pod_memory_working_set_bytes working set: memory in use without inactive page cache
# TYPE pod_memory_working_set_bytes gauge
pod_memory_working_set_bytes{namespace="n",pod="a"} 77 5000
# HELP pod_swap_usage_bytes swap in use
# TYPE pod_swap_usage_bytes gauge
pod_swap_usage_bytes{namespace="n",pod="a"} 3 5000
# HELP resource_scrape_error 1 if the figures could not be measured
# TYPE resource_scrape_error gauge
resource_scrape_error 0
# HELP scrape_error 1 if the figures could not be measured
# TYPE scrape_error gauge
scrape_error 0
`
	for range 3 {
		if got := page("", nil).Body.String(); got != want {
			t.Fatalf("got\n%s\nwant\n%s", got, want)
		}
		const failed = "# HELP resource_scrape_error 1 if the figures could not be measured\n# TYPE resource_scrape_error gauge\nresource_scrape_error 1\n" +
			"# HELP scrape_error 1 if the figures could not be measured\n# TYPE scrape_error gauge\nscrape_error 1\n"
		if got := page("", errors.New("refused")).Body.String(); got != failed {
			t.Fatalf("with an error: %s", got)
		}
	}
	text := parse(t, page("", nil).Body)
	w := page("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited", nil)
	d := expfmt.NewDecoder(w.Body, expfmt.ResponseFormat(w.Result().Header))
	n := 0
	for ; ; n++ {
		var f dto.MetricFamily
		if err := d.Decode(&f); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(&f, text[f.GetName()]) {
			t.Errorf("%v as protobuf, %v as text", &f, text[f.GetName()])
		}
	}
	if n != len(text) {
		t.Errorf("%d families as protobuf, %d as text", n, len(text))
	}
}
