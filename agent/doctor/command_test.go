package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/internal/config"
)

func TestDoctorWithoutAnAgent(t *testing.T) {
	var out, errs strings.Builder
	code := Main(context.Background(), []string{"--all", "--fail-swap-on=false", "--state-dir=" + t.TempDir()}, rooms(), &out, &errs)
	if errs.Len() > 0 || !strings.Contains(out.String(), "the configuration is valid") {
		t.Errorf("%d %s %s", code, out.String(), errs.String())
	}
	out.Reset()
	if code := Main(context.Background(), []string{"--output=json", "--prot=1"}, rooms(), &out, &errs); code != 1 {
		t.Errorf("a bad configuration is an error: %d", code)
	}
	var findings []struct{ ID, Severity, What, Advice string }
	if err := json.Unmarshal([]byte(out.String()), &findings); err != nil || findings[0].Severity != "error" ||
		!strings.Contains(findings[0].What, "did you mean --port?") {
		t.Errorf("%v %+v", err, findings)
	}
}

// TestDoctorIsNotAnswered checks that the doctor warns if an agent seems to run but does not return its settings. In this case, the doctor
// uses the default settings.
func TestDoctorIsNotAnswered(t *testing.T) {
	n, stop := servertest.Start(t)
	n.Settings = func() any { return "none of these" }
	_, finding, err := findConfiguration(t.Context(), nil, []string{n.Socket}, nil)
	if err != nil || finding.Severity != Warning || !strings.Contains(finding.What, n.Socket) ||
		!strings.Contains(finding.What, "defaults") || finding.Advice == "" {
		t.Errorf("%+v %v", finding, err)
	}
	stop()
	if _, finding, err = findConfiguration(t.Context(), nil, []string{n.Socket}, nil); err != nil || finding.Severity != OK {
		t.Errorf("no agent runs: %+v %v", finding, err)
	}
	for _, err := range []error{syscall.EACCES, context.DeadlineExceeded} {
		if f, there := silentAgent("/s", fmt.Errorf("dial: %w", err)); !there || f.Advice == "" || strings.Contains(f.What, "dial") {
			t.Errorf("%v: %v %+v", err, there, f)
		}
	}
}

// TestDoctorAsksTheAgent checks that the doctor uses the settings of the running agent. It also asks the agent for its bridges and
// sandboxes, and does not report those of running pods.
func TestDoctorAsksTheAgent(t *testing.T) {
	n, stop := servertest.Start(t)
	n.Settings = func() any {
		cfg, _, err := config.Load([]string{"--hostname-override=n", "--pod-cidr=10.9.0.0/24", "--root-dir=/r", "--eviction-hard=memory.available<1Mi"})
		if err != nil {
			t.Error(err)
		}
		return Settings(cfg)
	}
	cfg, finding, err := findConfiguration(t.Context(), nil, []string{n.Dir + "/none", n.Socket}, nil)
	if err != nil || cfg.Dirs.Root != "/r" || fmt.Sprint(cfg.PodCIDRs) != "[10.9.0.0/24]" ||
		!*cfg.Kubelet.FailSwapOn != cfg.SwapUnasked || !strings.Contains(finding.What, n.Socket) {
		t.Errorf("%+v %+v %v", cfg, finding, err)
	}
	cfg, finding, err = findConfiguration(t.Context(), []string{"--root-dir=/other"}, []string{n.Socket}, nil)
	if err != nil || cfg.Dirs.Root != "/other" || finding.What != "the configuration is valid" {
		t.Errorf("flags override the running agent: %+v %+v %v", cfg, finding, err)
	}
	if names := otherBridges(t.Context(), []string{n.Dir + "/none", n.Socket}); len(names) != 1 || names[0] != "islet0" {
		t.Errorf("bridges: %q", names)
	}
	if ids, ok := askSandboxes(t.Context(), n.Socket); !ok || len(ids) != 1 || ids[0] != "sandbox" {
		t.Errorf("got %q, %v", ids, ok)
	}
	stop()
	if ids, ok := askSandboxes(t.Context(), n.Socket); ok {
		t.Errorf("sandboxes without an agent: %q", ids)
	}
}
