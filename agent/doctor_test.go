package agent

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/islet-edge/islet/agent/server/servertest"
)

func TestDoctorWithoutAnAgent(t *testing.T) {
	var out, errs strings.Builder
	code := Doctor(context.Background(), []string{"--all", "--fail-swap-on=false", "--state-dir=" + t.TempDir()}, &out, &errs)
	if errs.Len() > 0 || !strings.Contains(out.String(), "the configuration is valid") {
		t.Errorf("%d %s %s", code, out.String(), errs.String())
	}
	out.Reset()
	if code := Doctor(context.Background(), []string{"--output=json", "--prot=1"}, &out, &errs); code != 1 {
		t.Errorf("a bad configuration is an error: %d", code)
	}
	var findings []struct{ ID, Severity, What, Advice string }
	if err := json.Unmarshal([]byte(out.String()), &findings); err != nil || findings[0].Severity != "error" || !strings.Contains(findings[0].What, "did you mean --port?") {
		t.Errorf("%v %+v", err, findings)
	}
}

// What belongs to pods that run is not left over, as the agent tells.
func TestDoctorAsksTheAgent(t *testing.T) {
	n, stop := servertest.Start(t)
	if ids, ok := sandboxes(t.Context(), n.Socket); !ok || len(ids) != 1 || ids[0] != "sandbox" {
		t.Errorf("got %q, %v", ids, ok)
	}
	stop()
	if ids, ok := sandboxes(t.Context(), n.Socket); ok {
		t.Errorf("nobody is there and says %q", ids)
	}
}
