package ctrd

import (
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/metrics/process"
)

// TestMetricLabels checks that each metric has cAdvisor's labels and the labels of its own descriptor. A device is named if the kernel
// knows its name, and otherwise has its number.
func TestMetricLabels(t *testing.T) {
	labels := []string{"c", "/kubepods/poda/c1", "img", "c1", "ns", "p"}
	s := &sample{names: map[string]string{"8:0": "/dev/sda"}, network: []process.Interface{{Name: "eth0", Received: 7}}, open: process.Files{Known: true}}
	s.IO = []cgroup.IO{{Device: "8:0", ReadBytes: 1}, {Device: "999:999", ReadBytes: 2}}
	s.OwnFaults, s.PageFaults = 3, 4
	var got []string
	for _, table := range [][]metric{containerMetrics, sandboxMetrics} {
		for _, m := range readAll(table, labels, s) {
			got = append(got, m.Name+" "+strings.Join(m.LabelValues[len(labels):], ","))
			if !slices.Equal(m.LabelValues[:len(labels)], labels) {
				t.Errorf("%s: %q", m.Name, m.LabelValues)
			}
			i := slices.IndexFunc(table, func(d metric) bool { return d.name == m.Name })
			if len(m.LabelValues) != len(podLabels)+len(table[i].labels) {
				t.Errorf("%s has %d labels", m.Name, len(m.LabelValues))
			}
		}
	}
	for _, want := range []string{"container_fs_reads_bytes_total /dev/sda", "container_fs_reads_bytes_total 999:999", "container_cpu_usage_seconds_total total",
		"container_memory_failures_total pgfault,container", "container_memory_failures_total pgfault,hierarchy", "container_network_receive_bytes_total eth0", "container_processes ",
		"container_file_descriptors ", "container_sockets ", "container_blkio_device_usage_total /dev/sda,8,0,Read",
		"container_blkio_device_usage_total 999:999,999,999,Write"} {
		if !slices.Contains(got, want) {
			t.Errorf("no %s in %q", want, got)
		}
	}
	if len(s.names) != 2 {
		t.Errorf("names %v", s.names)
	}
}
