package node

// All calls of time.Sleep in this file are in synctest bubbles, whose clock advances at once.

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/kube"
)

// A contested DuplicateDetector knows another machine with the name of this node.
type contested struct{ noDuplicates }

func (contested) Conditions() []v1.NodeCondition {
	return []v1.NodeCondition{{Type: "Duplicate", Status: v1.ConditionTrue}}
}

// withBootID returns a patch of a Node with the boot ID of another machine.
func withBootID(patch []byte) ([]byte, error) {
	var p map[string]map[string]any
	if err := json.Unmarshal(patch, &p); err != nil {
		return nil, err
	}
	p["status"]["nodeInfo"] = map[string]string{"bootID": "other"}
	return json.Marshal(p)
}

// TestSameReport checks a report that changes nothing, because another machine with the name of this node has just written the same values,
// and its own boot ID. The server answers with the version of the other machine's Node. The node still corrects the boot ID.
func TestSameReport(t *testing.T) {
	shared := func(c *Config) {
		c.Duplicates, c.OwnConditions = contested{}, []v1.NodeConditionType{"Duplicate"}
		facts := c.Facts
		c.Facts = func(ctx context.Context) (Facts, error) {
			f, err := facts(ctx)
			f.Info.BootID = "mine"
			return f, err
		}
	}
	in(t, shared, func(w *world) {
		time.Sleep(time.Minute)
		client := w.Server.Client(w.T)
		defer client.CloseConnections()
		var once atomic.Bool
		other := func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPatch || !strings.HasSuffix(r.URL.Path, "/nodes/n/status") || once.Swap(true) {
				return false
			}
			body, err := io.ReadAll(r.Body)
			data := body
			if err == nil {
				data, err = withBootID(body)
			}
			if err == nil {
				_, err = kube.Patch[v1.Node](context.Background(), client, "", "n", types.StrategicMergePatchType, data, metav1.PatchOptions{}, "status")
			}
			if err != nil {
				w.Error(err)
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			return false
		}
		w.Fault.Store(&other)
		w.are(func(f *Facts) { f.DiskPressure = !f.DiskPressure })
		w.Poke()
		time.Sleep(30 * time.Second)
		if got := w.node().Status.NodeInfo.BootID; !once.Load() || got != "mine" {
			w.Errorf("boot ID %q, the other machine has written: %v", got, once.Load())
		}
	})
}
