package selfcheck

import (
	"strings"
	"testing"

	"github.com/islet-edge/islet/agent/change/update"
)

// TestSelf checks that the self-test of this program succeeds on this machine. It fails without a writable directory.
func TestSelf(t *testing.T) {
	var out, bad strings.Builder
	if code := Main("0.2.0", &out, &bad); code != 0 || out.String() != update.SelfTestOutput("0.2.0")+"\n" || bad.Len() > 0 {
		t.Errorf("%d, %q, %q", code, &out, &bad)
	}
	t.Setenv("TMPDIR", "/nowhere")
	out.Reset()
	if code := Main("0.2.0", &out, &bad); code != 1 || out.Len() > 0 || !strings.Contains(bad.String(), "/nowhere") {
		t.Errorf("%d, %q, %q", code, &out, &bad)
	}
}
