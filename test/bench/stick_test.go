package bench

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/figures"
	"github.com/islet-edge/islet/test/machine"
)

const (
	stickImages    = 10
	stickImageSize = 8 << 20 // bytes that cannot be compressed, besides the test's program
	stickRounds    = 3
)

// TestStick measures the time from the moment when a stick with a bundle is plugged in until its ten pods are Ready. Each pod has an image
// of its own. The import of the same images from archives is measured in the same run.
func TestStick(t *testing.T) {
	figures.SkipUnlessBench(t)
	f := &figures.Table{}
	var imports, sticks time.Duration
	for range stickRounds {
		imports += importImages(t)
		sticks += plugIn(t)
	}
	f.Add(fmt.Sprintf("import of %d images", stickImages), seconds(imports/stickRounds), "", "")
	f.Add(fmt.Sprintf("stick in to %d pods Ready", stickImages), seconds(sticks/stickRounds), seconds(imports*3/2/stickRounds),
		fmt.Sprintf("ratio %.2f", sticks.Seconds()/imports.Seconds()))
	fmt.Print("\n", f)
}

// writeImages writes the archives of the images to a directory of the machine's disk.
func writeImages(t *testing.T, m *machine.Machine, dir string) (files []string) {
	t.Helper()
	top := machine.Root(t)
	tool := filepath.Join(m.Disk, "mkimage")
	run(t, top, "go", "build", "-o", tool, "./packaging/mkimage")
	program := filepath.Join(filepath.Dir(machine.Archive(t)), "podtool")
	if err := os.MkdirAll(filepath.Join(m.Disk, dir), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range stickImages {
		data := make([]byte, stickImageSize)
		if _, err := rand.Read(data); err != nil {
			t.Fatal(err)
		}
		m.Write("data", string(data))
		file := filepath.Join(m.Disk, dir, fmt.Sprintf("i%d.tar", i))
		run(t, m.Disk, tool, "-ref", stickImage(i), "-entrypoint", "/podtool", "-o", file, program, filepath.Join(m.Disk, "data"))
		files = append(files, file)
	}
	return files
}

func stickImage(i int) string { return fmt.Sprintf("localhost/stick%d:1", i) }

func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	c := exec.Command(args[0], args[1:]...)
	c.Dir = dir
	out, err := c.Output()
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			t.Fatalf("%v: %v: %s", args, err, failed.Stderr)
		}
		t.Fatalf("%v: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}

// importImages returns the time of an import of the images.
func importImages(t *testing.T) time.Duration {
	t.Helper()
	m := machine.New(t, "edge")
	m.Boot()
	files := writeImages(t, m, "images")
	m.StartAgent()
	defer m.PowerOff()
	began := time.Now()
	m.Islet(append([]string{"images", "import"}, files...)...)
	return time.Since(began)
}

// plugIn returns the time from the moment when a stick is plugged in until its pods are Ready.
func plugIn(t *testing.T) time.Duration {
	t.Helper()
	m := machine.New(t, "edge")
	m.Boot()
	writeImages(t, m, "kiosk/images")
	key := m.Islet("bundle", "keys", "new", m.Disk+"/key")
	label := fmt.Sprintf("B%d", os.Getpid())
	m.Write("edge.yaml", fmt.Sprintf("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: %s/cni\n"+
		"bundle: {keys: [%q], healthyFor: 2s, deadline: 5m, medium: {label: %s}}\n", m.Disk, strings.TrimSpace(key), label))
	m.Write("kiosk/bundle.yaml", "apiVersion: islet.dev/v1alpha1\nkind: Bundle\nname: kiosk\nnumber: 1\n")
	var names []string
	for i := range stickImages {
		m.Write(fmt.Sprintf("kiosk/manifests/p%03d.yaml", i), strings.ReplaceAll(pod(i), machine.Image, stickImage(i)))
		names = append(names, fmt.Sprintf("p%03d", i))
	}
	if err := os.Mkdir(m.Disk+"/stick", 0o755); err != nil {
		t.Fatal(err)
	}
	m.Islet("bundle", "build", m.Disk+"/kiosk", "-o", m.Disk+"/stick/kiosk.tar")
	m.Islet("bundle", "sign", m.Disk+"/stick/kiosk.tar", "--key", m.Disk+"/key")
	image := filepath.Join(m.Disk, "stick.img")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 512<<20)); err != nil {
		t.Fatal(err)
	}
	run(t, m.Disk, "mkfs.ext4", "-q", "-L", label, "-d", m.Disk+"/stick", image)
	m.StartAgent()
	defer m.PowerOff()
	began := time.Now()
	device := run(t, m.Disk, "losetup", "--find", "--show", image)
	defer run(t, m.Disk, "losetup", "-d", device)
	m.WaitReady(names...)
	return time.Since(began)
}
