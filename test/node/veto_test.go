package node

import (
	"os"
	"strings"
	"testing"
)

// A veto is a pod that is not ready whenever another version of islet is on trial.
type veto struct {
	*updates
	trials int // that ended
}

// newVeto starts the node with the pod beside two that do what they should.
func newVeto(t *testing.T) *veto {
	v := &veto{updates: bootUpdates(t)}
	v.m.Write("flags/ready", "")
	v.m.Write("manifests/evil.yaml", manifest("evil",
		"    readinessProbe: {exec: {command: [/podtool, cat, /flags/ready]}, periodSeconds: 1, failureThreshold: 1}\n"+
			"    volumeMounts: [{name: flags, mountPath: /flags}]\n  volumes: [{name: flags, hostPath: {path: "+v.m.Disk+"/flags}}]\n",
		"count", "10ms"))
	v.m.Write("edge.yaml", "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: "+v.m.Disk+
		"/cni\nconfiguration: {healthyFor: 5s, deadline: 25s}\nupdate: {keys: ["+v.Public+"]}\n")
	v.m.Write("manifests/one.yaml", manifest("one", "", "count", "10ms"))
	v.m.Write("manifests/two.yaml",
		manifest("two", "    readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1, failureThreshold: 1}\n", "serve", ":8080"))
	v.m.StartAgent()
	v.ids = containers(v.m.WaitReady("one-edge", "two-edge", "evil-edge"))
	return v
}

// during makes the pod unready as soon as a trial has begun, and ready when that is over. It gives why
// the trial failed.
func (v *veto) during() (why string) {
	v.Helper()
	v.m.Await("a trial", func() bool {
		b, err := os.ReadFile(v.m.Disk + "/state/configuration.json")
		return err == nil && strings.Contains(string(b), `"trial":{`)
	})
	v.m.Remove("flags/ready")
	v.m.Await("the end of the trial", func() bool {
		s, ok := show(v.m)
		if !ok || len(s.History) <= v.trials || s.Trying && s.History[v.trials].Why == "" {
			return false
		}
		why = s.History[v.trials].Why
		return true
	})
	v.trials++
	v.m.Write("flags/ready", "")
	return why
}

// TestUpdateVeto: a pod that makes itself unready during each trial is named, and keeps the node from
// another version only once; a person who says so has it at once.
func TestUpdateVeto(t *testing.T) {
	t.Parallel()
	v := newVeto(t)
	v.m.Islet("update", "--no-wait", v.archive("9.1.0", v.BuildVersion("9.1.0")))
	if why := v.during(); !strings.Contains(why, "1 pods are not ready that were: default/evil-edge") {
		t.Errorf("the first trial: %q", why)
	}
	if why := v.during(); why != "" {
		t.Errorf("the second trial: %q", why)
	}
	v.as("9.1.0")
	v.m.Islet("update", "--no-wait", "--despite-pods", v.archive("9.2.0", v.BuildVersion("9.2.0")))
	if why := v.during(); why != "" {
		t.Errorf("the trial of which a person says that pods do not count: %q", why)
	}
	v.as("9.2.0")
}
