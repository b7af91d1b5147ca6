package node

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/test/machine"
)

func has(text string) func(string) bool {
	return func(log string) bool { return strings.Contains(log, text) }
}

// exampleSerial replaces the device of the example with a volume with the end of a pseudoterminal, because the kernel opens such an end
// only below /dev/pts. A second pod has the device, for which a loop device stands in.
func exampleSerial(t *testing.T, x *examples) {
	text := replaced(t, fileText(t, exampleDir+"serial-line.yaml"), "{name: serial-line}", "{name: terminal}",
		"    resources: {limits: {islet.dev/serial: 1}}\n", "    volumeMounts: [{name: line, mountPath: /dev/serial0}]\n")
	x.applyFile("terminal", text+"  volumes: [{name: line, hostPath: {path: "+x.otherEnd+", type: CharDevice}}]\n")
	x.ready("terminal")
	b := make([]byte, 16)
	n, err := x.line.Read(b)
	if got := string(b[:n]); got != "start\n" || err != nil {
		t.Errorf("the device has received %q: %v", got, err)
	}
	if _, err := x.line.WriteString("21.5\n"); err != nil {
		t.Fatal(err)
	}
	x.logged("the answer of the device", func(log string) bool { return log == "21.5\n" }, "terminal")
	x.needLoops()
	x.apply("serial-line")
	x.logged("data of the device", has("/dev/ttyUSB0\n"), "serial-line")
}

// needLoops skips the test of a device if the host has no loop devices.
func (x *examples) needLoops() {
	x.t.Helper()
	if !x.loops {
		x.t.Skip("the host has no loop devices, which stand in for devices")
	}
}

func exampleCamera(t *testing.T, x *examples) {
	x.needLoops()
	x.apply("camera")
	x.ready("camera")
	x.Await("the picture", func() bool {
		b, _ := os.ReadFile(x.claim("pictures", "now.jpg"))
		return string(b) == "data of /dev/video0\n"
	})
	// The device belongs to one pod. Another one must not get it.
	x.applyFile("camera-2", replaced(t, fileText(t, exampleDir+"camera.yaml"), "{name: camera}", "{name: camera-2}"))
	x.WaitPods("the second pod to be refused", func(pods map[string]machine.Pod) bool {
		return pods["camera-2"].Status.Reason == "UnexpectedAdmissionError"
	})
}

func exampleGPIO(t *testing.T, x *examples) {
	x.needLoops()
	x.apply("gpio")
	x.applyFile("gpio-2", replaced(t, fileText(t, exampleDir+"gpio.yaml"), "{name: gpio}", "{name: gpio-2}"))
	for _, pod := range []string{"gpio", "gpio-2"} { // they share the chip
		x.ready(pod)
		x.logged("the events of the line", has("data of /dev/gpiochip0\n"), pod)
	}
}

func exampleI2C(_ *testing.T, x *examples) {
	x.needLoops()
	x.apply("i2c-sensor", `"60"`, `"0.1"`)
	x.ready("i2c-sensor")
	x.logged("two values", func(log string) bool { return strings.Count(log, "data of /dev/i2c-1\n") >= 2 }, "i2c-sensor")
}

func exampleBroker(t *testing.T, x *examples) {
	x.apply("mqtt-broker", "mqtt.example.com:1883", elsewhere+":2883", `"60"`, `"0.2"`)
	x.ready("mqtt-broker")
	queue := x.claim("mosquitto", "queue")
	x.Await("messages to be kept", func() bool { return strings.Count(fileText(t, queue), "\n") >= 2 })
	x.restart("mqtt-broker") // the sensor counts from 0 again
	kept := strings.Count(fileText(t, queue), "\n")
	lines := x.lines(2883)
	for i := range kept {
		line := x.next(lines)
		if i == 0 && line != "room/count 0" {
			t.Errorf("the first message is %q", line)
		}
		if number := strings.TrimPrefix(line, "room/count "); line == number {
			t.Errorf("message %d is %q", i, line)
		}
	}
	x.next(lines) // a message from after the outage
}

func exampleShipper(t *testing.T, x *examples) {
	x.apply("log-shipper", "logs.example.com", elsewhere, `"60"`, `"0.2"`)
	x.ready("log-shipper")
	x.Await("lines to be kept", func() bool {
		b, _ := os.ReadFile(x.claim("log-buffer", "queue"))
		return strings.Count(string(b), "\n") >= 2
	})
	lines := x.lines(5170)
	for i := range 4 {
		if got, want := x.next(lines), fmt.Sprint("event ", i); got != want {
			t.Errorf("line %d is %q", i, got)
		}
	}
}

func exampleDatabase(t *testing.T, x *examples) {
	x.apply("database")
	x.ready("database")
	if out := x.Islet("exec", "database", "--", "redis-cli", "set", "meter", "4711"); out != "OK\n" {
		t.Errorf("set: %q", out)
	}
	x.Islet("delete", "-f", x.Disk+"/applied/database.yaml")
	x.WaitPods("the pod to be gone", func(pods map[string]machine.Pod) bool { _, there := pods["database"]; return !there })
	x.apply("database")
	x.ready("database")
	if out := x.Islet("exec", "database", "--", "redis-cli", "get", "meter"); out != "4711\n" {
		t.Errorf("after delete and apply the value is %q", out)
	}
	c, err := x.Dial(t.Context(), "tcp", "127.0.0.1:6379")
	if err != nil {
		t.Fatalf("a program of the node: %v", err)
	}
	c.Close()
	if _, err := x.Dial(t.Context(), "tcp", elsewhere+":6379"); err == nil {
		t.Error("the database can be reached from outside the node")
	}
}

func exampleHomeAssistant(t *testing.T, x *examples) {
	x.apply("home-assistant")
	x.ready("home-assistant")
	page, err := x.get("http://127.0.0.1:8123/")
	if err != nil || !strings.Contains(page, elsewhere) {
		t.Errorf("the program sees the network %q: %v", page, err)
	}
	if _, err := os.Stat(x.claim("home-assistant", "configuration.yaml")); err != nil {
		t.Error(err)
	}
}

func exampleCron(t *testing.T, x *examples) {
	x.apply("cron", "weather.example.com", elsewhere+":8001", `"3600"`, `"0.2"`)
	x.logged("a run without the server", has("run failed\n"), "cron")
	l := x.listen(8001)
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "sun") }))
	x.logged("two runs", func(log string) bool { return strings.Count(log, "run succeeded\n") >= 2 }, "cron")
	pod := x.ready("cron")
	if got := pod.Status.ContainerStatuses[0].RestartCount; got != 0 {
		t.Errorf("the pod was restarted %d times", got)
	}
	if out := x.Islet("exec", "cron", "--", "cat", "/tmp/forecast"); out != "sun" {
		t.Errorf("the work has fetched %q", out)
	}
}

func exampleProbes(t *testing.T, x *examples) {
	x.apply("probes")
	first := x.ready("probes").Status.ContainerStatuses[0]
	x.Islet("exec", "probes", "--", "rm", "/tmp/www/ready")
	pod := x.WaitPods("the pod not to be ready", func(pods map[string]machine.Pod) bool { return !pods["probes"].Ready() })["probes"]
	if now := pod.Status.ContainerStatuses[0]; now.RestartCount != 0 || now.ContainerID != first.ContainerID {
		t.Errorf("the readiness probe has restarted the container: %+v", now)
	}
	x.Islet("exec", "probes", "--", "rm", "/tmp/www/alive")
	x.WaitPods("the liveness probe to restart the container", func(pods map[string]machine.Pod) bool {
		c := pods["probes"].Status.ContainerStatuses
		return len(c) == 1 && c[0].RestartCount >= 1 && pods["probes"].Ready()
	})
}

func exampleMirror(t *testing.T, x *examples) {
	x.apply("registry-mirror")
	x.ready("registry-mirror")
	const image = "registry.example.com/mirrored:1"
	fillMirror(t, x.claim("registry", ""), image)
	x.applyFile("mirrored", strings.NewReplacer(machine.Image, image, "    imagePullPolicy: Never\n", "", `    args: [""]`+"\n", "").
		Replace(manifest("mirrored", "")))
	x.ready("mirrored") // registry.example.com does not exist
	if log := x.Islet("logs", "registry-mirror"); !strings.Contains(log, "/v2/mirrored/blobs/sha256:") {
		t.Errorf("the node has not used the mirror:\n%s", log)
	}
}

func exampleRunOnce(t *testing.T, x *examples) {
	var calls atomic.Int32
	l := x.listen(8002)
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprint(w, "settings")
	}))
	x.apply("run-once", "provision.example.com", elsewhere+":8002")
	done := x.phase("run-once", "Succeeded")
	if got := done.Status.ContainerStatuses[0].RestartCount; got != 1 {
		t.Errorf("the job has failed %d times instead of once", got)
	}
	x.apply("run-once", "provision.example.com", elsewhere+":8002")
	if again := x.phase("run-once", "Succeeded"); again.Metadata.UID != done.Metadata.UID {
		t.Errorf("the job is another pod: %+v", again)
	}
	if got := fileText(t, x.claim("run-once", "runs")); got != "run\nrun\n" {
		t.Errorf("runs: %q", got)
	}
	if got := fileText(t, x.claim("run-once", "settings")); got != "settings" {
		t.Errorf("the job has stored %q", got)
	}
}

func exampleWait(t *testing.T, x *examples) {
	x.apply("wait-for-service", "plc.example.com", elsewhere)
	x.Await("the init container to run", func() bool {
		for _, command := range x.ContainerProcesses() {
			if strings.Contains(command, `until nc -z "$HOST"`) {
				return true
			}
		}
		return false
	})
	if pod := x.Pods()["wait-for-service"]; pod.Status.Phase != "Pending" || pod.Status.ContainerStatuses[0].ContainerID != "" {
		t.Errorf("the application has not waited: %+v", pod.Status)
	}
	l := x.listen(4840)
	go func() {
		for c, err := net.Conn(nil), error(nil); err == nil; {
			if c, err = l.Accept(); err == nil {
				c.Close()
			}
		}
	}()
	x.ready("wait-for-service")
	x.logged("the application", has("the service answers\n"), "wait-for-service")
}

func exampleConfigFiles(t *testing.T, x *examples) {
	x.apply("config-files")
	before := x.ready("config-files")
	x.logged("the value", func(log string) bool { return log == "target 21.5\n" }, "config-files")
	if got := file(x.Machine, "config-files", "/run/secrets/thermostat/token"); got != "change-me" {
		t.Errorf("the Secret is %q", got)
	}
	if got := x.Islet("exec", "config-files", "--", "stat", "-L", "-c", "%a %g", "/run/secrets/thermostat/token"); got != "440 1000\n" {
		t.Errorf("the mode and the group of the Secret's file are %q", got)
	}
	x.apply("config-files", "21.5", "19")
	x.logged("the new value", func(log string) bool { return log == "target 21.5\ntarget 19\n" }, "config-files")
	requireSame(t, before, x.Pods()["config-files"])
}

// exampleEviction has a machine of its own, because the memory of the machine runs out.
func exampleEviction(t *testing.T, _ *examples) {
	m := machine.New(t, "edge")
	m.Write("state/images/examples.tar", string(exampleImages(t, []string{exampleDir + "eviction-priority.yaml"})))
	m.Boot()
	m.Write("kubelet.yaml", evictConfig(m, fmt.Sprintf("systemReserved: {memory: %dKi}\nevictionHard: {allocatableMemory.available: 100Mi}\n",
		memoryKiB(t)-300<<10)))
	m.StartAgent()
	x := &examples{Machine: m, t: t}
	x.apply("eviction-priority")
	evictedFor(t, x.phase("optional", "Failed"), "The node was low on resource: memory.")
	if pod := x.ready("important"); pod.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the important pod was restarted: %+v", pod.Status)
	}
}

func exampleGracefulStop(t *testing.T, x *examples) {
	x.apply("graceful-stop")
	x.ready("graceful-stop")
	record := x.claim("graceful-stop", "record")
	x.Await("the program to record", func() bool { b, _ := os.ReadFile(record); return string(b) == "recording\n" })
	x.Islet("delete", "pod", "graceful-stop")
	x.WaitPods("the pod to be gone", func(pods map[string]machine.Pod) bool { _, there := pods["graceful-stop"]; return !there })
	if got := fileText(t, record); got != "recording\nno new records\nfile closed\n" {
		t.Errorf("the record is %q", got)
	}
}

func exampleUsers(_ *testing.T, x *examples) {
	x.apply("user-namespace")
	x.ready("user-namespace")
	x.logged("root that is not the root of the node", func(log string) bool {
		return regexp.MustCompile(`^0\n\s*0\s+([1-9]\d{4,})\s+65536\n$`).MatchString(log)
	}, "user-namespace")
}

func exampleReadOnly(t *testing.T, x *examples) {
	x.apply("read-only-root")
	x.ready("read-only-root")
	x.Await("the file in memory", func() bool { return file(x.Machine, "read-only-root", "/tmp/now") != "" })
	out, code := x.Try("exec", "read-only-root", "--", "/podtool", "write", "/bin/x", "x")
	if code == 0 || !strings.Contains(out, "read-only file system") {
		t.Errorf("a write to the root file system: %d %s", code, out)
	}
	status := x.Islet("exec", "read-only-root", "--", "cat", "/proc/self/status")
	for _, want := range []string{"Uid:\t1000", "NoNewPrivs:\t1", "CapBnd:\t0000000000000000", "Seccomp:\t2"} {
		if !strings.Contains(status, want) {
			t.Errorf("no %q in %s", want, status)
		}
	}
	if mounts := x.Islet("exec", "read-only-root", "--", "cat", "/proc/self/mountinfo"); !regexp.MustCompile(
		` /tmp .* - tmpfs .*size=8192k`).MatchString(mounts) {
		t.Errorf("/tmp is not in memory:\n%s", mounts)
	}
}

func exampleScratch(t *testing.T, x *examples) {
	x.apply("scratch-space")
	x.applyFile("too-much", replaced(t, fileText(t, exampleDir+"scratch-space.yaml"), "{name: scratch-space}", "{name: too-much}",
		`"16"`, `"48"`))
	x.ready("scratch-space")
	x.logged("the work", has("wrote 16 MiB\n"), "scratch-space")
	evictedFor(t, x.phase("too-much", "Failed"), `Usage of EmptyDir volume "scratch" exceeds the limit "32Mi"`)
	if p := x.Pods()["scratch-space"]; !p.Ready() {
		t.Errorf("the pod within its limit is %+v", p.Status)
	}
}

func exampleWebPage(t *testing.T, x *examples) {
	x.apply("web-page")
	x.ready("web-page")
	if page, err := x.get("http://" + elsewhere + "/"); err != nil || !strings.Contains(page, "This is a node.") {
		t.Errorf("the page is %q: %v", page, err)
	}
}

func exampleClockFree(t *testing.T, x *examples) {
	x.apply("clock-free-job", `"10"`, `"3"`, `"60"`, `"0.1"`)
	x.phase("clock-free-job", "Succeeded")
	boot := strings.TrimSpace(fileText(t, "/proc/sys/kernel/random/boot_id"))
	last := 0.0
	lines := strings.Split(strings.TrimSpace(x.Islet("logs", "clock-free-job")), "\n")
	for _, line := range lines {
		words := strings.Fields(line)
		if len(words) != 3 || words[0] != boot {
			t.Fatalf("the record is %q", line)
		}
		up, err := strconv.ParseFloat(words[1], 64)
		if err != nil || up <= last {
			t.Errorf("the records are %q: %v", lines, err)
		}
		last = up
	}
	if len(lines) != 3 {
		t.Errorf("%d records", len(lines))
	}
}

func exampleRealTime(t *testing.T, x *examples) {
	if b := fileText(t, "/proc/sys/kernel/sched_rt_runtime_us"); strings.HasPrefix(b, "-") || b == "0\n" {
		t.Skipf("kernel.sched_rt_runtime_us is %q", b)
	}
	x.apply("real-time", "32Mi", "2Mi") // the test's own limit may be 8 MiB
	x.ready("real-time")
	x.logged("the latency", has("policy=1 priority=20 "), "real-time")
	got, err := unix.SchedGetAttr(processOf(t, x.Machine, "/podtool role /bin/cyclictest"), 0)
	if err != nil || got.Policy != unix.SCHED_FIFO || got.Priority != 20 {
		t.Errorf("the program has %+v: %v", got, err)
	}
	limits := x.Islet("exec", "real-time", "--", "cat", "/proc/1/limits")
	if !regexp.MustCompile(`Max locked memory +2097152 `).MatchString(limits) {
		t.Errorf("the program has the limits\n%s", limits)
	}
}

func exampleHostMetrics(t *testing.T, x *examples) {
	x.apply("host-metrics")
	x.ready("host-metrics")
	page, err := x.get("http://" + elsewhere + ":9100/metrics")
	if err != nil || !strings.Contains(page, `process{name="islet"}`) {
		t.Errorf("the processes of the node are %s: %v", page, err)
	}
	if first := x.Islet("exec", "host-metrics", "--", "cat", "/proc/1/cmdline"); strings.Contains(first, "node_exporter") {
		t.Errorf("the pod has processes of its own, of which the first is %q", first)
	}
	if out, code := x.Try("exec", "host-metrics", "--", "/podtool", "write", "/host/root"+x.Disk+"/x", "x"); code == 0 {
		t.Errorf("the pod can write to the node: %s", out)
	}
}
