package manifest

import (
	"strings"
	"testing"

	"github.com/islet-edge/islet/internal/keys"
)

// TestOtherNode checks that a manifest whose pod names another node is rejected with the field, in every source but the API
// server, which only sends the pods of this node.
func TestOtherNode(t *testing.T) {
	manifest := func(node string) []byte {
		return []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  nodeName: " + node + "\n  containers: [{name: a, image: a}]\n")
	}
	for _, source := range []string{keys.SourceFile, keys.SourceHTTP, keys.SourceLocal} {
		o := Options{Origin: "a.yaml", Source: source, NodeName: "node-1", Lists: true}
		for _, node := range []string{`""`, "node-1", "Node-1"} {
			set, err := Decode(manifest(node), o)
			if err != nil || len(set.Pods) != 1 || set.Pods[0].Spec.NodeName != "node-1" {
				t.Errorf("%s, nodeName %s: %v", source, node, err)
			}
		}
		for _, node := range []string{"node-2", "node", strings.Repeat("x", 1<<19)} {
			_, err := Decode(manifest(node), o)
			all := ErrorsIn(err)
			if len(all) != 1 || all[0].Field != "spec.nodeName" || !strings.Contains(all[0].Detail, "this node is node-1") && len(node) < 10 ||
				len(all[0].Detail) > 2*maxText {
				t.Errorf("%s, nodeName %.20s: %.300v", source, node, err)
			}
		}
		o.NodeName = ""
		if source != keys.SourceLocal { // the name of a static pod has the name of the node
			continue
		}
		if _, err := Decode(manifest("node-2"), o); err != nil {
			t.Errorf("%s, unknown node: %v", source, err)
		}
	}
	if _, err := Decode(manifest("node-2"), Options{Source: keys.SourceAPI, NodeName: "node-1"}); err != nil && strings.Contains(err.Error(), "another node") {
		t.Errorf("a pod of the API server: %v", err)
	}
}
