package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/test/machine"
)

const (
	exampleDir = "../../docs/examples/"
	// elsewhere is an address of the machine outside the pod network. Servers that the examples use have this address.
	elsewhere = "192.0.2.1"
	// firstExampleLoop is the number of the first loop device that stands in for a device of the examples.
	firstExampleLoop = 4721
)

// exampleTests has, for each file in docs/examples, a function that applies the file and checks that it does what its user wants.
var exampleTests = map[string]func(*testing.T, *examples){
	"camera": exampleCamera, "clock-free-job": exampleClockFree, "config-files": exampleConfigFiles, "cron": exampleCron,
	"database": exampleDatabase, "eviction-priority": exampleEviction, "gpio": exampleGPIO, "graceful-stop": exampleGracefulStop,
	"home-assistant": exampleHomeAssistant, "host-metrics": exampleHostMetrics, "i2c-sensor": exampleI2C, "log-shipper": exampleShipper,
	"mqtt-broker": exampleBroker, "probes": exampleProbes, "read-only-root": exampleReadOnly, "real-time": exampleRealTime,
	"registry-mirror": exampleMirror, "run-once": exampleRunOnce, "scratch-space": exampleScratch, "serial-line": exampleSerial,
	"user-namespace": exampleUsers, "wait-for-service": exampleWait, "web-page": exampleWebPage,
}

// examples is a node with the settings and the images that the examples need.
type examples struct {
	*machine.Machine
	t        *testing.T
	line     *os.File // the device's end of a serial line
	otherEnd string   // path of the other end
	loops    bool     // whether loop devices stand in for the devices
}

// TestExamples applies every manifest in docs/examples to one node.
func TestExamples(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(exampleDir + "*.yaml")
	if err != nil || len(files) != len(exampleTests) {
		t.Errorf("%d examples and %d tests of them: %v", len(files), len(exampleTests), err)
	}
	x := &examples{t: t}
	settings := standInDevices(t, x) // before the machine, so that they are removed after the machine's processes have ended
	m := machine.New(t, "edge")
	images := exampleImages(t, files)
	m.Write("state/images/examples.tar", string(images))
	x.Machine = m
	x.boot()
	m.Write("edge.yaml", settings+fmt.Sprintf("cniConfDir: %s/cni\nregistryConfigDir: %[1]s/certs\nociRuntime: %s\n", m.Disk, currentOCI(t)))
	m.Write("certs/registry.example.com/hosts.toml", fileText(t, exampleDir+"node/hosts.toml"))
	m.StartAgent()
	t.Run("on one node", func(t *testing.T) {
		for _, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".yaml")
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				check := exampleTests[name]
				if check == nil {
					t.Fatal("no test of this example")
				}
				check(t, &examples{Machine: m.In(t), t: t, line: x.line, otherEnd: x.otherEnd, loops: x.loops})
			})
		}
	})
	if !t.Failed() {
		x.checkReboot()
	}
}

// boot turns the machine on, with an address outside the pod network.
func (x *examples) boot() {
	x.Boot()
	x.Run("ip", "address", "add", elsewhere+"/32", "dev", "lo")
}

// checkReboot checks that the node has, after a reboot, what the comments of the examples promise: the data of the database, the messages
// that the central broker has not acknowledged, and a job that does not run again.
func (x *examples) checkReboot() {
	x.t.Helper()
	unsent := ""
	x.Await("a message to be kept", func() bool {
		at, err := strconv.Atoi(fileText(x.t, x.claim("mosquitto", "sent")))
		if err != nil {
			x.t.Fatal(err)
		}
		line, _, whole := strings.Cut(fileText(x.t, x.claim("mosquitto", "queue"))[at:], "\n")
		unsent = line
		return whole
	})
	x.PowerOff()
	x.boot()
	x.StartAgent()
	x.Await("the database with its data", func() bool {
		out, code := x.Try("exec", "database", "--", "redis-cli", "get", "meter")
		return code == 0 && out == "4711\n"
	})
	if got := x.next(x.lines(2883)); got != unsent {
		x.t.Errorf("the first message after the reboot is %q, not %q", got, unsent)
	}
	x.phase("run-once", "Succeeded")
	if got := fileText(x.t, x.claim("run-once", "runs")); got != "run\nrun\n" {
		x.t.Errorf("after the reboot the job has run: %q", got)
	}
}

// standInDevices creates stand-ins for the devices. It returns the EdgeConfiguration of the examples with the stand-ins.
func standInDevices(t *testing.T, x *examples) string {
	t.Helper()
	x.line, x.otherEnd = openTerminal(t)
	x.loops = true
	text := fileText(t, exampleDir+"node/edge.yaml")
	for i, path := range []string{"/dev/ttyUSB0", "/dev/video0", "/dev/gpiochip0", "/dev/i2c-1"} {
		loop, err := attachLoop(t, firstExampleLoop+i, "data of "+path+"\n")
		if err != nil {
			t.Log("no stand-in for devices:", err)
			x.loops = false
			break
		}
		text = replaced(t, text, "[{paths: ["+path+"]}]", "[{paths: ["+loop+"]}]")
	}
	return text
}

// replaced replaces texts, which must exist.
func replaced(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("no %q in\n%s", pairs[i], text)
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}

// openTerminal opens a pseudoterminal. It returns the controlling end and the path of the other end.
func openTerminal(t *testing.T) (*os.File, string) {
	t.Helper()
	f, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	n, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(f.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("/dev/pts/%d", n)
	if err := os.Chmod(path, 0o666); err != nil { // the pod's user is not root
		t.Fatal(err)
	}
	other, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0) // without an open end, reads from the first one fail
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	return f, path
}

// attachLoop creates a loop device with a content, and removes it at the end of the test.
func attachLoop(t *testing.T, number int, content string) (string, error) {
	t.Helper()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer control.Close()
	if err := unix.IoctlSetInt(int(control.Fd()), unix.LOOP_CTL_ADD, number); err != nil && !errors.Is(err, unix.EEXIST) {
		return "", err
	}
	path, disk := fmt.Sprintf("/dev/loop%d", number), filepath.Join(t.TempDir(), "disk")
	t.Cleanup(func() {
		control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer control.Close()
		if err := unix.IoctlSetInt(int(control.Fd()), unix.LOOP_CTL_REMOVE, number); err != nil {
			t.Errorf("remove %s: %v", path, err)
		}
	})
	if err := os.WriteFile(disk, []byte(content+strings.Repeat("\x00", 4096-len(content))), 0o600); err != nil {
		return "", err
	}
	backing, err := os.OpenFile(disk, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer backing.Close()
	loop, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer loop.Close()
	if err := unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_SET_FD, int(backing.Fd())); err != nil {
		return "", err
	}
	t.Cleanup(func() {
		loop, err := os.OpenFile(path, os.O_RDWR, 0)
		if err == nil {
			err = unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_CLR_FD, 0)
			loop.Close()
		}
		if err != nil {
			t.Errorf("detach %s: %v", path, err)
		}
	})
	return path, nil
}

// apply applies an example after replacements of texts.
func (x *examples) apply(name string, pairs ...string) {
	x.t.Helper()
	x.applyFile(name, replaced(x.t, fileText(x.t, exampleDir+name+".yaml"), pairs...))
}

func (x *examples) applyFile(name, text string) {
	x.t.Helper()
	file := "applied/" + name + ".yaml"
	x.Write(file, text)
	x.Islet("apply", "-f", filepath.Join(x.Disk, file))
}

// ready waits until a pod is ready.
func (x *examples) ready(name string) machine.Pod {
	x.t.Helper()
	return x.WaitPods(name+" to be ready", func(pods map[string]machine.Pod) bool { return pods[name].Ready() })[name]
}

// phase waits until a pod has a phase.
func (x *examples) phase(name, phase string) machine.Pod {
	x.t.Helper()
	return x.WaitPods(name+" to be "+phase, func(pods map[string]machine.Pod) bool { return pods[name].Status.Phase == phase })[name]
}

// logged waits until the log of a container fulfils a condition.
func (x *examples) logged(what string, ok func(log string) bool, pod ...string) {
	x.t.Helper()
	log := ""
	x.t.Cleanup(func() {
		if x.t.Failed() {
			x.t.Logf("log of %q:\n%s", pod, log)
		}
	})
	x.Await(what, func() bool {
		log, _ = x.Try(append([]string{"logs"}, pod...)...)
		return ok(log)
	})
}

// claim returns the path of a file in a claim, on the host.
func (x *examples) claim(name, file string) string {
	return filepath.Join(x.Disk, "state/claims/default", name, file)
}

// get requests a page from inside the machine.
func (x *examples) get(url string) (string, error) {
	c := http.Client{Timeout: machine.WaitTimeout / 3, Transport: &http.Transport{DisableKeepAlives: true, DialContext: x.Dial}}
	r, err := c.Get(url)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return string(b), err
}

// listen opens a port of the machine, outside the pod network.
func (x *examples) listen(port int) net.Listener {
	x.t.Helper()
	var l net.Listener
	err := machine.InNetwork(x.Pid(), func() (err error) {
		l, err = new(net.ListenConfig).Listen(context.Background(), "tcp", fmt.Sprintf("%s:%d", elsewhere, port))
		return err
	})
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { l.Close() })
	return l
}

// lines serves a port on which each line is acknowledged with "ok". It returns the lines.
func (x *examples) lines(port int) <-chan string {
	x.t.Helper()
	l, got := x.listen(port), make(chan string, 1000)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			context.AfterFunc(x.t.Context(), func() { c.Close() }) // the server is down when the test ends
			go func() {
				defer c.Close()
				in := bufio.NewScanner(c)
				for in.Scan() {
					got <- in.Text()
					fmt.Fprintln(c, "ok")
				}
			}()
		}
	}()
	return got
}

// next returns the next line, and fails the test if there is none.
func (x *examples) next(lines <-chan string) string {
	x.t.Helper()
	select {
	case line := <-lines:
		return line
	case <-time.After(machine.WaitTimeout):
		x.t.Fatal("no line")
		return ""
	}
}

// restart ends the containers of a pod, and waits until the pod has other ones.
func (x *examples) restart(name string) {
	x.t.Helper()
	before := x.ready(name).Status.ContainerStatuses
	x.Islet("restart", name)
	x.WaitPods(name+" to run again", func(pods map[string]machine.Pod) bool {
		now := pods[name].Status.ContainerStatuses
		return pods[name].Ready() && len(now) == len(before) && !slices.ContainsFunc(now, func(c machine.ContainerStatus) bool {
			return slices.ContainsFunc(before, func(b machine.ContainerStatus) bool { return b.ContainerID == c.ContainerID })
		})
	})
}
