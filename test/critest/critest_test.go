package critest

import (
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

const (
	registry = "127.0.0.1:5000"
	socket   = "unix:///run/islet/cri.sock"
)

func TestMain(m *testing.M) {
	machine.Main()
	os.Exit(m.Run())
}

// unreachable contains the specs that cannot pass here, with the reasons.
var unreachable = map[string]string{
	"public image with digest should be pulled and removed": "the image of that digest is in a registry on the internet only",
}

// tools returns the folder with critest and crictl, which `make critest` builds.
func tools(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("ISLET_CRITEST")
	if dir == "" {
		t.Skip("make critest builds the suite and runs this test")
	}
	return dir
}

// start creates a machine with a node, a registry with the suite's images, and one pod of the node. It returns the pod's container.
func start(t *testing.T) (*machine.Machine, string) {
	t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatalf("%v: install busybox-static", err)
	}
	m := machine.New(t, "edge")
	tool, images := filepath.Join(m.Disk, "tool"), filepath.Join(m.Disk, "registry")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", tool, "./tool")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	writeImages(t, images, busybox, tool)
	m.InstallImage()
	m.Write("certs/_default/hosts.toml",
		fmt.Sprintf("server = \"http://%[1]s\"\n[host.\"http://%[1]s\"]\ncapabilities = [\"pull\", \"resolve\"]\n", registry))
	m.Write("edge.yaml", fmt.Sprintf(
		"apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: %[1]s/cni\nregistryConfigDir: %[1]s/certs\ncriSocket: %[2]s\nociRuntime: %[3]s\n",
		m.Disk, strings.TrimPrefix(socket, "unix://"), machine.Runc(t)))
	m.Write("manifests/own.yaml",
		fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: own}\nspec:\n  containers:\n  - {name: c, image: %q, imagePullPolicy: Never, args: [count, 1s]}\n", machine.Image))
	m.Boot()
	server := m.Command(tool, "registry", registry, images)
	server.Stdout, server.Stderr = os.Stdout, os.Stderr
	if _, err := machine.StartProcess(server); err != nil {
		t.Fatal(err)
	}
	m.StartAgent()
	return m, ownContainer(m)
}

// ownContainer returns the container of the node's own pod.
func ownContainer(m *machine.Machine) string {
	return m.WaitReady("own-edge")["own-edge"].Status.ContainerStatuses[0].ContainerID
}

// A report is the suite's output in JUnit's form.
type report struct {
	Suites []struct {
		Cases []struct {
			Name    string `xml:"name,attr"`
			Status  string `xml:"status,attr"`
			Failure *struct {
				Message string `xml:"message,attr"`
				Text    string `xml:",chardata"`
			} `xml:"failure"`
			Skipped *struct {
				Message string `xml:"message,attr"`
			} `xml:"skipped"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

// TestSuite checks that every spec passes, except specs that need the internet. The result lists specs that the suite skips because the
// host lacks a feature. The node's own pod must not restart.
func TestSuite(t *testing.T) {
	dir := tools(t)
	m, before := start(t)
	args := []string{"-runtime-endpoint", socket, "-ginkgo.junit-report", filepath.Join(m.Disk, "junit.xml"), "-ginkgo.no-color", "-ginkgo.v=false"}
	if focus := os.Getenv("ISLET_CRITEST_FOCUS"); focus != "" {
		args = append(args, "-ginkgo.focus", focus)
	}
	if flags := os.Getenv("ISLET_CRITEST_FLAGS"); flags != "" {
		args = append(args, strings.Fields(flags)...)
	}
	cmd := m.Command(filepath.Join(dir, "critest"), args...)
	log, err := os.Create(filepath.Join(dir, "critest.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	ended := cmd.Run()
	b, err := os.ReadFile(filepath.Join(m.Disk, "junit.xml"))
	if err != nil {
		t.Fatalf("the suite has no report (%v, %v): see %s", ended, err, log.Name())
	}
	var r report
	if err := xml.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	var list []string
	passed := 0
	for _, s := range r.Suites {
		for _, c := range s.Cases {
			name := strings.TrimPrefix(c.Name, "[It] ")
			known := ""
			for spec, why := range unreachable {
				if strings.Contains(name, spec) {
					known = why
				}
			}
			switch {
			case c.Failure != nil && known != "":
				list = append(list, "cannot  "+name+": "+known)
			case c.Failure != nil:
				list = append(list, "FAIL    "+name)
				t.Errorf("%s: %s\n%.2000s", name, c.Failure.Message, c.Failure.Text)
			case c.Skipped != nil || c.Status == "skipped":
				if c.Skipped != nil && c.Skipped.Message != "" && c.Skipped.Message != "skipped" {
					list = append(list, "skip    "+name+": "+c.Skipped.Message)
				}
			case strings.HasPrefix(c.Name, "[It]"):
				passed++
				list = append(list, "pass    "+name)
			}
		}
	}
	slices.Sort(list)
	if err := os.WriteFile(filepath.Join(dir, "critest.txt"), []byte(strings.Join(list, "\n")+"\n"), 0o644); err != nil {
		t.Error(err)
	}
	t.Logf("%d specs pass; all are in %s", passed, filepath.Join(dir, "critest.txt"))
	if passed == 0 {
		t.Error("no spec was run")
	}
	if after := ownContainer(m); after != before {
		t.Errorf("the node's own pod was restarted: %s, then %s", before, after)
	}
}
