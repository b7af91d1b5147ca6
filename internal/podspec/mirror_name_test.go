package podspec_test

import (
	"testing"

	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/podtest"
)

// TestMirrorName checks that static pods of two sources of one node have different names in the API server, and static pods of two nodes
// too.
func TestMirrorName(t *testing.T) {
	for _, c := range []struct{ source, name, node, want string }{
		{keys.SourceAPI, "web", "kiosk-1", "web"},
		{keys.SourceFile, "web-kiosk-1", "kiosk-1", "web-kiosk-1"},
		{keys.SourceHTTP, "web-kiosk-1", "kiosk-1", "web-kiosk-1"},
		{keys.SourceLocal, "web", "kiosk-1", "web.kiosk-1"},
		{keys.SourceBundle, "web", "Kiosk-2", "web.kiosk-2"},
	} {
		p := podtest.New(c.name, podtest.Source(c.source), podtest.Node(c.node))
		if got := podspec.MirrorName(p); got != c.want || p.Name != c.name {
			t.Errorf("%s pod %s: %s, want %s", c.source, c.name, got, c.want)
		}
	}
}
