package remote

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/islet-edge/islet/runtime/crisuite"
)

// network writes a CNI configuration with the CNI plugins of islet.
func network(t *testing.T, disk string) {
	t.Helper()
	islet := os.Getenv("ISLET_BIN")
	if islet == "" {
		islet = crisuite.Build(t, "github.com/islet-edge/islet")
	}
	for _, dir := range []string{"bin", "cni"} {
		if err := os.Mkdir(filepath.Join(disk, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"bridge", "host-local", "loopback", "portmap"} {
		if err := os.Symlink(islet, filepath.Join(disk, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { exec.Command("ip", "link", "del", "islet-remote0").Run() }) // this call fails if the bridge was not created
	if err := os.WriteFile(filepath.Join(disk, "cni/10-test.conflist"), fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"test","plugins":[
		{"type":"bridge","bridge":"islet-remote0","isGateway":true,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.78.0.0/24"}]],"dataDir":"%s/leases"}}]}`, disk), 0o644); err != nil {
		t.Fatal(err)
	}
}

// image returns the path of an archive. It contains the image of the suite or a sandbox image. Both images contain the same program, which
// only waits if it is called pause.
func image(t *testing.T, ref string) string {
	t.Helper()
	prog := crisuite.Build(t, "github.com/islet-edge/islet/runtime/crisuite/prog")
	out := filepath.Join(t.TempDir(), "image.tar")
	if ref == crisuite.ImageRef {
		if err := os.WriteFile(out, crisuite.Image(t, prog), 0o644); err != nil {
			t.Fatal(err)
		}
		return out
	}
	pause := filepath.Join(t.TempDir(), "pause")
	if err := os.Rename(prog, pause); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "run", "github.com/islet-edge/islet/packaging/mkimage", "-ref", ref, "-entrypoint", "/pause", "-o", out, pause)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}
