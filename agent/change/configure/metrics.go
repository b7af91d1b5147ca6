package configure

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/islet-edge/islet/agent/change/trial"
)

// Collectors returns the metrics of configurations and trials. The kubelet_node_config_* metrics have the names that kubelets before 1.24
// used. The metrics are absent if nothing was ever sent to the node.
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
		"Number of trials and failed self-tests of other islet versions, by outcome. Only the last twenty trials of any kind are counted.",
		[]string{"outcome"}, nil)
	trials = prometheus.NewDesc("islet_configuration_trials",
		"Number of configuration trials, by outcome. Only the last twenty trials are counted.", []string{"outcome"}, nil)
	// The next two metrics are times and not counters. Prometheus sees no increase of a counter whose first sample is after the first
	// failure, and it may not reach the node when a counter changes.
	updateResult = prometheus.NewDesc("islet_update_result",
		"Unix timestamp of the last accepted or failed trial or self-test of another islet version, by outcome.", []string{"outcome"}, nil)
	configurationResult = prometheus.NewDesc("islet_configuration_result",
		"Unix timestamp of the last accepted or failed trial of a configuration, by outcome.", []string{"outcome"}, nil)
)

func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{assigned, inUse, knownGood, failed, trials, updates, updateResult, configurationResult} {
		ch <- d
	}
}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	k := c.k
	k.mu.Lock()
	defer k.mu.Unlock()
	if counts, found := k.countTrials(true); found {
		sendCounts(ch, updates, counts)
	}
	k.sendResult(ch, updateResult, true)
	if !k.record.EverSent() {
		return
	}
	for _, m := range []struct {
		desc   *prometheus.Desc
		config *trial.Configuration
	}{{assigned, k.assignedConfiguration()}, {inUse, k.activeConfiguration()}, {knownGood, k.record.Good}} {
		from, s := "local", trial.Source{}
		if !m.config.IsLocal() {
			s = m.config.Source
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
	if k.unusedReason() != "" {
		bad = 1
	}
	ch <- prometheus.MustNewConstMetric(failed, prometheus.GaugeValue, bad)
	counts, _ := k.countTrials(false)
	sendCounts(ch, trials, counts)
	k.sendResult(ch, configurationResult, false)
}

// sendResult sends the time of the last accepted or failed trial: of a program if programs is true, otherwise of a configuration. It
// ignores undecided trials.
func (k *Keeper) sendResult(ch chan<- prometheus.Metric, desc *prometheus.Desc, programs bool) {
	for _, o := range slices.Backward(k.record.History) {
		if o.Program == programs && !o.Undecided {
			_, outcome := o.Result()
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(o.At.Unix()), outcome)
			return
		}
	}
}

// countTrials counts the trials by outcome. It counts trials of programs if programs is true, otherwise trials of configurations. It
// returns false if there were no such trials.
func (k *Keeper) countTrials(programs bool) (counts map[string]int, found bool) {
	counts = map[string]int{"accepted": 0, "failed": 0, "interrupted": 0}
	for _, o := range k.record.History {
		if o.Program == programs {
			_, outcome := o.Result()
			counts[outcome]++
			found = true
		}
	}
	return counts, found
}

func sendCounts(ch chan<- prometheus.Metric, desc *prometheus.Desc, counts map[string]int) {
	for _, outcome := range slices.Sorted(maps.Keys(counts)) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(counts[outcome]), outcome)
	}
}
