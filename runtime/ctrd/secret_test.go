package ctrd_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/crisuite"
)

// TestNoSecretOnDisk checks that no file on the disk contains a Secret from the environment or the command of a container. This includes
// the time while the container runs and the time after a power failure. Secrets in the records of an older version are removed.
func TestNoSecretOnDisk(t *testing.T) {
	const value = "s3cr3t-in-the-environment"
	n := newNode(t, 16)
	ctx := t.Context()
	sandbox := &api.PodSandboxConfig{Metadata: &api.PodSandboxMetadata{Name: "p", Namespace: "n", Uid: "secret"}, Linux: &api.LinuxPodSandboxConfig{CgroupParent: n.cgroup}}
	pod, err := n.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Config: sandbox})
	if err != nil {
		t.Fatal(err)
	}
	cfg := &api.ContainerConfig{
		Metadata: &api.ContainerMetadata{Name: "c"}, Image: &api.ImageSpec{Image: crisuite.ImageRef}, Command: []string{"/prog"}, Args: []string{"print", value, "wait"},
		Envs: []*api.KeyValue{{Key: "PASSWORD", Value: []byte(value)}}, Labels: map[string]string{"kept": "yes"},
	}
	c, err := n.CreateContainer(ctx, &api.CreateContainerRequest{PodSandboxId: pod.PodSandboxId, Config: cfg, SandboxConfig: sandbox})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.StartContainer(ctx, &api.StartContainerRequest{ContainerId: c.ContainerId}); err != nil {
		t.Fatal(err)
	}
	out, err := n.ExecSync(ctx, &api.ExecSyncRequest{ContainerId: c.ContainerId, Cmd: []string{"/prog", "env", "PASSWORD"}, Timeout: 60})
	if err != nil || string(out.GetStdout()) != value+"\n" {
		t.Fatalf("the container's environment has %q: %v", out.GetStdout(), err)
	}
	expectNowhere(t, n.dir, value)

	// The test writes the record as an earlier version did.
	n.stop(t)
	record := filepath.Join(n.dir, "state", "containers", c.ContainerId, "record.json")
	b, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := bytes.Cut(b, []byte("\n"))
	var rec map[string]any
	packed, err1 := proto.Marshal(cfg)
	if err := json.Unmarshal(line, &rec); err != nil || err1 != nil {
		t.Fatal(err, err1)
	}
	rec["config"] = packed
	old, err := json.Marshal(rec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(record, append(append(old, '\n'), b[len(line)+1:]...), 0o600); err != nil {
		t.Fatal(err)
	}
	n.start(t)
	st, err := n.ContainerStatus(ctx, &api.ContainerStatusRequest{ContainerId: c.ContainerId})
	if err != nil || st.Status.State != api.ContainerState_CONTAINER_RUNNING || st.Status.Labels["kept"] != "yes" {
		t.Errorf("after the restart: %v, %v", st, err)
	}
	expectNowhere(t, n.dir, value)
	n.stop(t)
	n.reboot(t)
	expectNowhere(t, n.dir, value)
	n.start(t)
}

// expectNowhere checks that no file below dir contains text. It also decodes configurations in base64.
func expectNowhere(t *testing.T, dir, text string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(text)) || decodes(b, text) {
			t.Errorf("%s contains the secret", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// decodes reports whether a record contains a configuration with text.
func decodes(b []byte, text string) bool {
	for line := range bytes.Lines(b) {
		var rec struct{ Config []byte }
		if json.Unmarshal(line, &rec) == nil && bytes.Contains(rec.Config, []byte(text)) {
			return true
		}
	}
	return false
}
