package node

import (
	"maps"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// TestLabelsOfExistingNode checks that a start with other labels in the configuration changes those labels of an existing Node that a
// kubelet changes, and no others. A label with an empty value is removed. The labels of other programs stay.
func TestLabelsOfExistingNode(t *testing.T) {
	own := map[string]string{v1.LabelHostname: "n", v1.LabelOSStable: "linux", "mine": "1"} // of a node without further labels
	labels := map[string]string{"mine": "1"}
	in(t, func(c *Config) { c.Labels, c.RemovedLabels = maps.Clone(labels), []string{"former"} }, func(w *world) {
		addTheirs := func() {
			n := w.node()
			n.Labels["theirs"], n.Labels["former"] = "1", "1"
			w.Put(n)
		}
		addTheirs()
		look := func(when string, changed map[string]string) {
			t.Helper()
			time.Sleep(time.Minute)
			want := maps.Clone(own)
			maps.Copy(want, changed)
			got := w.node().Labels
			for key, value := range want {
				if have, found := got[key]; have != value || found != (value != "") {
					t.Errorf("%s: label %s is %q, not %q", when, key, have, value)
				}
			}
			if got["theirs"] != "1" {
				t.Errorf("%s: the labels of other programs became %v", when, got)
			}
		}
		look("created", nil)
		restart := func() {
			w.end()
			w.start()
		}
		for _, value := range []string{"first", "second", ""} {
			changed := map[string]string{}
			for _, key := range strings.Fields(defaultLabels) {
				changed[key] = value
			}
			labels = maps.Clone(changed)
			labels["mine"], labels["late"] = "2", "2"
			restart()
			changed["former"] = ""
			changed["late"] = "" // as with a kubelet, other labels are set only when the Node is created
			look("labels with the value "+value, changed)
		}
		labels = map[string]string{v1.LabelTopologyZone: "z"}
		restart()
		look("only a zone", map[string]string{v1.LabelTopologyZone: "z"})
		requests := w.Requests("PATCH nodes")
		labels = nil
		restart()
		look("without a zone", map[string]string{v1.LabelTopologyZone: "z"})
		if more := w.Requests("PATCH nodes") - requests; more > 0 {
			t.Errorf("%d patches although nothing has changed", more)
		}
		w.end()
		w.Remove(w.node())
		labels = map[string]string{v1.LabelHostname: "another", "late": "3"}
		w.start()
		time.Sleep(time.Minute)
		addTheirs()
		look("created again", map[string]string{v1.LabelHostname: "another", "late": "3", "mine": ""})
	})
}
