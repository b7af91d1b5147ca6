package configure

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/islet-edge/islet/agent/change/trial"
)

// Collectors are the metrics, under the names that a kubelet had for them. Of a node that
// was sent nothing there are none.
func (k *Keeper) Collectors() []prometheus.Collector {
	return []prometheus.Collector{collector{k}}
}

type collector struct{ k *Keeper }

var (
	labels   = []string{"node_config_source", "node_config_uid", "node_config_resource_version", "node_config_kubelet_key"}
	assigned = prometheus.NewDesc("kubelet_node_config_assigned",
		"The node's understanding of intended config. The count is always 1.", labels, nil)
	inUse = prometheus.NewDesc("kubelet_node_config_active",
		"The config source the node is actively using. The count is always 1.", labels, nil)
	knownGood = prometheus.NewDesc("kubelet_node_config_last_known_good",
		"The config source the node will fall back to when it encounters certain errors. The count is always 1.", labels, nil)
	failed = prometheus.NewDesc("kubelet_node_config_error",
		"This metric is true (1) if the node is experiencing a configuration-related error, false (0) otherwise.", nil, nil)
	updates = prometheus.NewDesc("islet_update_trials",
		"Ended trials of other versions of islet among the last twenty of any kind, by how they ended.", []string{"outcome"}, nil)
	trials = prometheus.NewDesc("islet_configuration_trials",
		"Ended trials of configurations among the last twenty, by how they ended.", []string{"outcome"}, nil)
)

func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{assigned, inUse, knownGood, failed, trials, updates} {
		ch <- d
	}
}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	k := c.k
	k.mu.Lock()
	defer k.mu.Unlock()
	if all, any := k.ended(true); any {
		counts(ch, updates, all)
	}
	if !k.record.Used() {
		return
	}
	for _, m := range []struct {
		desc *prometheus.Desc
		of   *trial.Configuration
	}{{assigned, k.assigned()}, {inUse, k.active()}, {knownGood, k.record.Good}} {
		from, s := "local", trial.Source{}
		if !m.of.IsLocal() {
			s = m.of.Source
			from = s.File
			if s.Name != "" {
				from = "/api/v1/namespaces/" + s.Namespace + "/configmaps/" + s.Name
			}
		}
		key := ""
		if s.Name != "" {
			key = KubeletKey
		}
		ch <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, 1, from, s.UID, s.ResourceVersion, key)
	}
	bad := 0.0
	if k.problem() != "" {
		bad = 1
	}
	ch <- prometheus.MustNewConstMetric(failed, prometheus.GaugeValue, bad)
	all, _ := k.ended(false)
	counts(ch, trials, all)
}

// ended are how many trials ended how: of programs, or of configurations. Any: there were some.
func (k *Keeper) ended(programs bool) (by map[string]int, any bool) {
	by = map[string]int{"accepted": 0, "failed": 0, "interrupted": 0}
	for _, o := range k.record.History {
		switch {
		case o.Program != programs:
			continue
		case o.Why == "":
			by["accepted"]++
		case o.Undecided:
			by["interrupted"]++
		default:
			by["failed"]++
		}
		any = true
	}
	return by, any
}

func counts(ch chan<- prometheus.Metric, of *prometheus.Desc, by map[string]int) {
	for _, how := range slices.Sorted(maps.Keys(by)) {
		ch <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, float64(by[how]), how)
	}
}
