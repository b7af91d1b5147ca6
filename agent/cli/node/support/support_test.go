package support_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/cli"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/kubelet/server"
	"github.com/islet-edge/islet/agent/kubelet/server/local/node"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/internal/api"
)

// planted is part of each secret that TestSupport puts in the places that islet support reads.
const planted = "Hunter2hunter2"

// A plantedConfiguration is the configuration of a node with secrets.
type plantedConfiguration struct{ node.Configurer }

func (plantedConfiguration) Show() api.Configuration {
	return api.Configuration{
		Active:  api.ConfigurationRef{ID: "a1", Kubelet: "staticPodURLHeader:\n  X-Any: [" + planted + "]\n", Edge: "update: {archive: https://x/?k=" + planted + "}"},
		Follows: "https://u:" + planted + "@x/", FollowProblem: "GET https://x/?sig=" + planted + ": 403",
		History: []api.ConfigurationTrial{{ID: "a0", Why: "password=" + planted}},
	}
}

// unpackBundle returns the files of an archive of islet support.
func unpackBundle(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(r)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(z); ; {
		h, err := archive.Next()
		if err == io.EOF {
			return files
		}
		data, rerr := io.ReadAll(archive)
		if err := errors.Join(err, rerr); err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(h.Name, "islet-support/")] = string(data)
	}
}

// TestSupport plants secrets in every place that islet support reads. The archive must contain none of the secrets, a list of the redacted
// data, and all other data.
func TestSupport(t *testing.T) {
	n, _ := servertest.Start(t, func(c *server.Config) { c.Configuration = plantedConfiguration{} })
	crash := n.Pod("crash-pi", now.Add(-3*time.Hour), "app").DeepCopy()
	crash.Status.ContainerStatuses[0] = v1.ContainerStatus{Name: "app", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 1, ContainerID: "islet://crash-pi-app"}}}
	crash.Spec.Containers[0].Env = []v1.EnvVar{{Name: "PLAIN", Value: planted}}
	n.Put(crash)
	n.Log(t, "crash-pi-app", "any word "+planted)
	var statuses atomic.Int32
	n.Describe = func(s *api.Status) {
		s.Now = now
		s.Runtime.Version = fmt.Sprintf("9.%d", statuses.Add(1))
		for i := range s.Troubles {
			s.Troubles[i].Message += "; hook said " + planted
		}
		s.Problems = []string{"GET https://u:" + planted + "@registry/: 401"}
		s.Sources = []api.Source{{Name: "http", Origin: "https://x/?k=" + planted, Problems: []api.Problem{{Origin: "https://x/", Message: "token=" + planted}}}}
		s.Imports = []api.Import{{Ref: "x", Error: "Authorization: Bearer " + planted}}
		s.Runtime.Message = "--token " + planted
		s.Events = []api.Event{{Type: "Warning", Reason: "ConfigurationFailed", Message: "apiKey: " + planted}}
	}
	n.Events = func() []api.Event {
		return []api.Event{{Type: "Warning", Reason: "Unhealthy", Message: "Readiness probe failed: any word " + planted},
			{Type: "Warning", Reason: "Unhealthy", Message: "Liveness probe errored and resulted in unknown state: " + planted + " failed: x"},
			{Type: "Warning", Reason: "Failed", Message: "Failed to pull image: https://x/v2/?sig=" + planted},
			{Type: "Normal", Reason: "Started", Message: "Container started"}}
	}
	n.Settings = func() any {
		return map[string]any{"Kubelet": map[string]any{"staticPodURLHeader": map[string]any{"X-Any": []string{planted}}, "maxPods": 17},
			"Edge": map[string]any{"update": map[string]any{"archive": "https://u:" + planted + "@x/a.tar.gz"}}}
	}
	e := env(n, nil, nil, nil)
	e.Doctor = func(_ context.Context, args []string, out, errw io.Writer) int {
		fmt.Fprintf(out, "ok everything %q\n", args)
		fmt.Fprintf(errw, "registry password: %s\n", planted)
		return 1
	}
	e.AgentLog = func(context.Context) ([]byte, error) {
		return []byte("msg=begun\nmsg=probe pod=a/b result=\"any word " + planted + "\"\nmsg=\"preStop hook failed\" error=\"any word " + planted +
			"\"\n{\"msg\":\"postStart hook failed, the container will be stopped\",\"error\":\"any word " + planted + "\"}\nurl=https://u:" + planted +
			"@x/\n-----BEGIN PRIVATE KEY-----\n" + planted + "\n-----END PRIVATE KEY-----\nmsg=ended\n"), nil
	}
	support := func(file string) (code int, out, errText string) {
		var o, w bytes.Buffer
		e.Stdout, e.Stderr = &o, &w
		return cli.Main(t.Context(), []string{"support", file}, e), o.String(), w.String()
	}
	file := filepath.Join(t.TempDir(), "s.tar.gz")
	code, out, errText := support(file)
	if code != 0 || errText != "" || strings.Contains(out, planted) || !strings.Contains(out, "redacted: output of a container, 2 times") {
		t.Fatalf("%d\n%s%s", code, out, errText)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	files := unpackBundle(t, f)
	if !strings.Contains(files["versions.txt"], " 9.1") || !strings.Contains(files["status.json"], `"9.1"`) {
		t.Errorf("the versions and the status are not those of one answer: %s%s", files["versions.txt"], files["status.json"])
	}
	for name, wants := range map[string][]string{
		"versions.txt":       {"islet 1.2.3", "agent 1.2.3", "kernel "},
		"status.json":        {`"CrashLoopBackOff"`, `"lastLine": "REDACTED"`, "registry/: 401", `"attention"`},
		"attention.txt":      {"pod default/crash-pi: container app: CrashLoopBackOff: exit code 1"},
		"events.json":        {"Readiness probe failed: REDACTED", "Failed to pull image: https://x/v2/?REDACTED", "Container started"},
		"configuration.json": {`"a1"`, `"kubelet": "REDACTED"`, `"edge": "REDACTED"`},
		"settings.json":      {`"maxPods": 17`, `"staticPodURLHeader": "REDACTED"`, "https://REDACTED@x/a.tar.gz"},
		"doctor.txt":         {"ok everything", "registry password: REDACTED"},
		"agent.log":          {"msg=begun", "msg=probe pod=a/b result=REDACTED", `hook failed" error=REDACTED`, `"error":REDACTED`, "url=https://REDACTED@x/", "msg=ended"},
		"redacted.txt":       {"status.json", "field staticPodURLHeader, 1 times", "PEM block, 1 times"},
	} {
		for _, want := range wants {
			if !strings.Contains(files[name], want) {
				t.Errorf("%s has no %s:\n%s", name, want, files[name])
			}
		}
	}
	for name, text := range files {
		if strings.Contains(text, planted) {
			t.Errorf("%s has a secret:\n%s", name, text)
		}
	}
	if code, _, errText := support(file); code != command.ExitFailed || !strings.Contains(errText, "exists: choose another name") {
		t.Errorf("an existing file: %d %s", code, errText)
	}
	code, out, errText = support("-")
	if files := unpackBundle(t, strings.NewReader(out)); code != 0 || len(files) != 9 || !strings.Contains(errText, "status.json") {
		t.Errorf("to standard output: %d, %d files\n%s", code, len(files), errText)
	}
}

// TestSupportWithoutAgent checks that an archive is written even if no agent responds and no log exists. The command's output gives the
// reason for each missing part.
func TestSupportWithoutAgent(t *testing.T) {
	n, stop := servertest.Start(t)
	stop()
	var out, errw bytes.Buffer
	e := env(n, nil, &out, &errw)
	e.AgentLog = func(context.Context) ([]byte, error) { return nil, errors.New("no log") }
	file := filepath.Join(t.TempDir(), "s.tar.gz")
	if code := cli.Main(t.Context(), []string{"support", file}, e); code != 0 || !strings.Contains(out.String(), "missing: agent.log: no log") ||
		!strings.Contains(out.String(), "missing: status: cannot reach the agent") {
		t.Errorf("%d\n%s%s", code, &out, &errw)
	}
	check(t, n, run(t, n, "", "support"), command.ExitUsage, "", "islet: islet support needs one file, such as islet-support.tar.gz, or - for standard output\n")
}
