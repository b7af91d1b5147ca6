package config

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestRealTime(t *testing.T) {
	const head = "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\nrealTime: "
	load := func(text string, args ...string) (*Config, error) {
		dir := writeFiles(t, map[string]string{"e.yaml": head + text})
		c, _, err := Load(append([]string{"--hostname-override=n", "--edge-config=" + filepath.Join(dir, "e.yaml")}, args...))
		return c, err
	}
	for text, want := range map[string]string{
		"{pods: [{sources: [file]}]}":                                                 "realTime.pods[0].namespaces: Required value",
		"{pods: [{namespaces: [a]}]}":                                                 "realTime.pods[0].sources: Required value",
		"{pods: [{namespaces: ['[']}]}":                                               "realTime.pods[0].namespaces[0]: Invalid value",
		"{pods: [{namespaces: [a], names: ['']}]}":                                    "realTime.pods[0].names[0]: Invalid value",
		"{pods: [{namespaces: [a], sources: [all]}]}":                                 "realTime.pods[0].sources[0]: Unsupported value",
		"{pods: [{namespaces: [a], sources: [api], policies: [fifo]}]}":               "realTime.pods[0].policies[0]: Unsupported value",
		"{pods: [{namespaces: [a], sources: [api], ioClasses: [rt]}]}":                "realTime.pods[0].ioClasses[0]: Unsupported value",
		"{pods: [{namespaces: [a], sources: [api], maxPriority: 99}]}":                "realTime.pods[0].maxPriority: Invalid value",
		"{pods: [{namespaces: [a], sources: [api], minNice: 1}]}":                     "realTime.pods[0].minNice: Invalid value",
		"{pods: [{namespaces: [a], sources: [api], maxLockedMemory: 1Ki}]}":           "realTime.pods[0].maxLockedMemory: Invalid value",
		"{pods: [{namespaces: [a], sources: [api], isolatedCPUs: true}]}":             "set cpuManagerPolicy to static",
		"{pods: [" + strings.Repeat("{namespaces: [a], sources: [api]}, ", 65) + "]}": "realTime.pods: Too many",
		"{bandwidth: -1}":  "realTime.bandwidth: Invalid value",
		"{busyLimit: 1ms}": "realTime.busyLimit: Invalid value",
	} {
		if _, err := load(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s:\n got %v\nwant %q", text, err, want)
		}
	}
	c, err := load("{pods: [{namespaces: [a], sources: [api, file], policies: [FIFO], maxLockedMemory: 64Mi, isolatedCPUs: true}]}",
		"--cpu-manager-policy=static", "--reserved-cpus=0")
	if err != nil {
		t.Fatal(err)
	}
	if r := &c.Edge.RealTime; r.Pods[0].HighestPriority() != 49 || r.Pods[0].LockedMemory() != 64<<20 || r.Bandwidth != 50 ||
		r.BusyLimit.Duration.Seconds() != 1 || !r.IsolatesCPUs() || r.AllowUnthrottled {
		t.Errorf("got %+v", r)
	}
}
