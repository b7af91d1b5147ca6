package cli

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/keys"
)

// now is the time of the commands under test.
var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// result contains the output and the exit code of a command.
type result struct {
	out, err string
	code     int
}

func run(t *testing.T, n *servertest.Node, stdin string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out, errw bytes.Buffer
	code := Main(ctx, args, env(n, strings.NewReader(stdin), &out, &errw))
	return result{out.String(), errw.String(), code}
}

func env(n *servertest.Node, stdin io.Reader, out, errw io.Writer) Env {
	return Env{Stdin: stdin, Stdout: out, Stderr: errw, Version: "1.2.3", Now: func() time.Time { return now },
		Getenv: func(name string) string {
			if name == "ISLET_SOCKET" && n != nil {
				return n.Socket
			}
			return ""
		}}
}

// check compares the output and the exit code of a command with the expected ones. In the output, DIR stands for the node's directory.
func check(t *testing.T, n *servertest.Node, got result, code int, out, errText string) {
	t.Helper()
	if n != nil {
		got.out, got.err = strings.ReplaceAll(got.out, n.Dir, "DIR"), strings.ReplaceAll(got.err, n.Dir, "DIR")
	}
	if got.code != code || got.out != out || got.err != errText {
		t.Errorf("got code %d, want %d\n-- out\n%s-- want\n%s-- err\n%s-- want\n%s", got.code, code, got.out, out, got.err, errText)
	}
}

// node returns a node with pods in several states.
func node(t *testing.T) (*servertest.Node, func()) {
	n, stop := servertest.Start(t)
	n.Pod("web-pi", now.Add(-5*time.Minute-3*time.Second), "nginx", "sidecar")
	crash := n.Pod("crash-pi", now.Add(-3*time.Hour), "app").DeepCopy()
	crash.Status.ContainerStatuses[0] = v1.ContainerStatus{Name: "app", RestartCount: 3,
		State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 1, ContainerID: "islet://crash-pi-app",
			FinishedAt: metav1.NewTime(now.Add(-90 * time.Second))}}}
	n.Put(crash)
	dns := n.Pod("dns-pi", now.Add(-48*time.Hour), "dns").DeepCopy()
	dns.Namespace = "kube-system"
	dns.Annotations[keys.ConfigSource] = "file"
	n.Put(dns)
	return n, stop
}

func TestPods(t *testing.T) {
	n, _ := node(t)
	check(t, n, run(t, n, "", "pods"), 0, `NAME       READY   STATUS             RESTARTS      AGE
crash-pi   0/1     CrashLoopBackOff   3 (90s ago)   3h
web-pi     2/2     Running            0             5m3s
`, "")
	check(t, n, run(t, n, "", "pods", "-A", "-o", "wide"), 0,
		`NAMESPACE     NAME       READY   STATUS             RESTARTS      AGE    IP          NODE   SOURCE
default       crash-pi   0/1     CrashLoopBackOff   3 (90s ago)   3h     10.42.0.7   pi     local
default       web-pi     2/2     Running            0             5m3s   10.42.0.7   pi     local
kube-system   dns-pi     1/1     Running            0             2d     10.42.0.7   pi     file
`, "")
	check(t, n, run(t, n, "", "pods", "dns", "-o", "name"), 0, "pod/dns-pi\n", "")
	check(t, n, run(t, n, "", "pods", "-n", "nowhere"), 0, "", "No pods in namespace nowhere; there are 3 in others: use -A.\n")
	check(t, n, run(t, n, "", "pods", "-l", "no=such"), 0, "", "No pods match the labels no=such.\n")
	check(t, n, run(t, n, "", "status", "web"), ExitUsage, "",
		"islet: islet status takes no arguments, not \"web\"\nSee 'islet status --help'\n")
	check(t, n, run(t, n, "", "pods", "nothing"), ExitNotFound, "", "islet: pod \"nothing\" not found\n")
	check(t, n, run(t, n, "", "pods", "-o", "xml"), ExitUsage, "", "islet: output \"xml\": must be wide, json, yaml or name\n")
	if got := run(t, n, "", "pods", "web", "-o", "yaml"); got.code != 0 ||
		!strings.HasPrefix(got.out, "apiVersion: v1\nkind: Pod\nmetadata:\n") {
		t.Errorf("yaml: %d %s", got.code, got.out)
	}
}

func TestLogs(t *testing.T) {
	n, _ := node(t)
	n.Log(t, "web-pi-nginx", "one", "two", "three")
	n.Log(t, "web-pi-sidecar", "side")
	n.Log(t, "crash-pi-app", "why I died")
	defaulted := "Defaulted container \"nginx\" out of: nginx, sidecar\n"
	check(t, n, run(t, n, "", "logs", "web"), 0, "one\ntwo\nthree\n", defaulted)
	check(t, n, run(t, n, "", "logs", "--tail=1", "--timestamps", "default/web-pi", "-c", "nginx"), 0,
		"2026-11-21T02:03:04.000000005Z three\n", "")
	check(t, n, run(t, n, "", "logs", "web", "--all-containers", "--prefix", "--tail", "1"), 0,
		"[pod/web-pi/nginx] three\n[pod/web-pi/sidecar] side\n", "")
	check(t, n, run(t, n, "", "logs", "-p", "crash"), 0, "why I died\n", "")
	check(t, n, run(t, n, "", "logs", "web", "-c", "none"), ExitNotFound, "",
		"islet: pod default/web-pi has no container \"none\": it has nginx, sidecar\n")
	check(t, n, run(t, n, "", "logs", "-p", "web", "-c", "nginx"), 1, "",
		"islet: previous terminated container \"nginx\" in pod \"web-pi\" not found\n")
}

func TestApplyDelete(t *testing.T) {
	n, _ := node(t)
	file := filepath.Join(n.Dir, "hello.yaml")
	manifest := "apiVersion: v1\nkind: Pod\nmetadata: {name: hello}\n"
	os.WriteFile(file, []byte(manifest), 0o600)
	check(t, n, run(t, n, "", "apply", "-f", file), 0, "pod/hello created\n", "")
	check(t, n, run(t, n, manifest, "apply", "-f", "-"), 0, "pod/hello unchanged\n", "")
	check(t, n, run(t, n, "bad: x", "apply", "-f", "-"), 1, "",
		"islet: standard input: error unmarshaling JSON: while decoding JSON: json: unknown field \"bad\"\n")
	check(t, n, run(t, n, "", "apply", "-f", filepath.Join(n.Dir, "none")), ExitNotFound, "", "islet: no file DIR/none\n")
	check(t, n, run(t, n, "", "apply", "-f", "/dev/zero"), 1, "", "islet: /dev/zero is too large: a manifest may have at most 8 MiB\n")
	bad := filepath.Join(n.Dir, "bad.yaml")
	os.WriteFile(bad, []byte("bad: x"), 0o600)
	check(t, n, run(t, n, "kind: Pod", "apply", "-f", bad, "-f", "-"), 1, "",
		"islet: DIR/bad.yaml: error unmarshaling JSON: while decoding JSON: json: unknown field \"bad\"\nislet: standard input contains no pod and no object that pods use\n")
	check(t, n, run(t, n, "", "delete", "-f", file, "--force"), 0, "pod/hello deleted\n", "")
	check(t, n, run(t, n, "", "delete", "-f", file), ExitNotFound, "", "islet: pod \"hello\" does not exist\n")
	check(t, n, run(t, n, "", "delete", "pod", "hello", "--ignore-not-found"), 0, "", "")
	check(t, n, run(t, n, "", "delete", "dns"), 1, "", "islet: pod kube-system/dns-pi comes from the file source: remove its manifest there\n")

	// The command waits until the pod has been deleted.
	watching := n.Changed()
	done := make(chan result, 1)
	go func() { done <- run(t, n, "", "delete", "web") }()
	<-watching // the pod is Terminating
	n.Remove("uid-web-pi")
	check(t, n, <-done, 0, "pod/web-pi deleted\n", "")
	check(t, n, run(t, n, "", "delete", "crash", "--timeout=50ms"), 1, "pod/crash-pi deleted\n", "islet: 1 pod still not gone after 50ms\n")
}

func TestImages(t *testing.T) {
	n, _ := node(t)
	check(t, n, run(t, n, "", "images", "ls"), 0, `IMAGE             ID             SIZE
localhost/web:1   0123456789ab   5.0MiB
`, "")
	if got := run(t, n, "", "images", "ls", "-o", "yaml"); got.code != 0 || !strings.Contains(got.out, "- localhost/web:1\n") {
		t.Errorf("as YAML: %+v", got)
	}
	check(t, n, run(t, n, "", "images", "ls", "-o", "wide"), ExitUsage, "", "islet: output \"wide\": must be json or yaml\n")
	archive := filepath.Join(n.Dir, "web.tar")
	os.WriteFile(archive, []byte("localhost/new:1\n"+strings.Repeat("x", 4<<20)), 0o600)
	got := run(t, n, "", "images", "import", archive)
	if got.code != 0 || !strings.HasPrefix(got.out, "localhost/new:1") || !strings.Contains(got.err, "web.tar: unpacking\n") {
		t.Errorf("import: %+v", got)
	}
	check(t, n, run(t, n, "", "images", "import", "-q", "-"), 1, "", "islet: import -: - is no image archive\n")
	check(t, n, run(t, n, "", "images", "pull", "example.com/x"), 1, "",
		"example.com/x: downloading\nislet: pull example.com/x: no such host\n")
	later := &v1.Pod{}
	later.Name, later.Namespace, later.UID = "later", "default", "uid-later"
	later.Spec.Containers = []v1.Container{{Name: "i", Image: "localhost/web:1"}}
	n.Put(later)
	if got := run(t, n, "", "images", "rm", "localhost/web:1"); got.code == 0 ||
		!strings.Contains(got.err, "is needed by pod default/later") || !strings.Contains(got.err, "--force") {
		t.Errorf("an image that a pod needs: %+v", got)
	}
	check(t, n, run(t, n, "", "images", "rm", "--force", "localhost/web:1"), 0, "removed localhost/web:1\n", "")
	check(t, n, run(t, n, "", "images", "rm", "localhost/web:1"), ExitNotFound, "", "islet: image \"localhost/web:1\" not found\n")
}

func TestStatus(t *testing.T) {
	n, _ := node(t)
	n.Describe = func(s *api.Status) {
		s.Now = time.Date(2026, 11, 21, 2, 3, 4, 0, time.UTC)
		s.Started = s.Now.Add(-26 * time.Hour)
		s.Network.Config, s.Network.PodCIDRs = "built in", []string{"10.42.0.0/24"}
		s.Network.Repairs = &api.Repairs{Count: 2, Last: s.Now.Add(-5 * time.Minute), What: "bridge islet0"}
		s.Sources = []api.Source{{Name: "file", Origin: "/etc/kubernetes/manifests", Spoken: true, Pods: 1}, {Name: "local", Spoken: true, Pods: 2}}
		s.Store.Path = "/var/lib/islet/islet.db"
		s.Disks = []api.Disk{{Path: "/var/lib/islet", Total: 32 << 30, Free: 20 << 30}}
	}
	want := `Node:                  pi
Ready:                 yes
Agent:                 islet 1.2.3, up 26h
Clock:                 2026-11-21 02:03:04 UTC
Runtime:               containerd 2.3.4, crun 1.8.1, cgroup v2, overlayfs, pods per shim: 16
Network:               built in, 10.42.0.0/24
Network repaired:      2 items, the last one 5m ago: bridge islet0
Pods:                  3, 3 ready, 1 stuck
Source file:           1 pod from /etc/kubernetes/manifests
Source local:          2 pods
Disk /var/lib/islet:   20.0GiB of 32.0GiB free
Store:                 /var/lib/islet/islet.db

Needs attention:
  - pod default/crash-pi: container app: CrashLoopBackOff
`
	check(t, n, run(t, n, "", "status"), 1, want, "")
	n.Remove("uid-crash-pi")
	want, _, _ = strings.Cut(strings.Replace(want, "3, 3 ready, 1 stuck", "2, 2 ready", 1), "\nNeeds")
	check(t, n, run(t, n, "", "status"), 0, want, "")
	healthy := n.Describe
	n.Describe = func(s *api.Status) {
		healthy(s)
		s.Sources[0].Problems = []api.Problem{{Origin: "/etc/kubernetes/manifests/x.yaml", Field: "spec.containers[0].image", Message: "Required value"}}
		s.Disks[0].Free = 1 << 20
	}
	got := run(t, n, "", "status")
	if got.code != 1 || !strings.HasSuffix(got.out, `
Needs attention:
  - /etc/kubernetes/manifests/x.yaml: spec.containers[0].image: Required value
  - the disk of /var/lib/islet is nearly full: 1.0MiB of 32.0GiB free
`) {
		t.Errorf("status with problems: %d\n%s", got.code, got.out)
	}
}

func TestTop(t *testing.T) {
	n, _ := node(t)
	check(t, n, run(t, n, "", "top", "pods", "--containers", "-A"), 0, `NAMESPACE   NAME       CONTAINER   CPU(cores)   MEMORY(bytes)
default     crash-pi   app         100m         3Mi
default     dns-pi     dns         100m         3Mi
default     web-pi     nginx       100m         3Mi
default     web-pi     sidecar     100m         3Mi
`, "")
}

func TestUsage(t *testing.T) {
	n, stop := servertest.Start(t)
	check(t, n, run(t, n, "", "stauts"), ExitUsage, "", "islet: unknown command \"stauts\": did you mean \"status\"?\n")
	check(t, n, run(t, n, "", "logs", "--nope"), ExitUsage, "", "islet: unknown flag: --nope\nSee 'islet logs --help'\n")
	check(t, n, run(t, n, "", "exec", "web"), ExitUsage, "", "islet: exec needs a pod and a command: islet exec POD -- COMMAND\n")
	if got := run(t, n, "", "help"); got.code != 0 || !strings.Contains(got.out, "Exit codes: 0 done") ||
		strings.Contains(got.out, "__complete") {
		t.Errorf("help: %+v", got)
	}
	if got := run(t, n, "", "help", "images", "import"); got.code != 0 ||
		!strings.Contains(got.out, "islet images import [flags] ARCHIVE... | -\n") {
		t.Errorf("help of a command: %+v", got)
	}
	check(t, n, run(t, n, "", "frob", "x"), ExitUsage, "", "islet: unknown command \"frob\": see 'islet help'\n")
	for _, args := range [][]string{{}, {"--help"}, {"-h"}} {
		if got := run(t, n, "", args...); got.code != 0 || !strings.Contains(got.out, "port-forward") ||
			strings.Contains(got.out, "--pod-manifest-path") {
			t.Errorf("islet %q: %+v", args, got)
		}
	}
	check(t, nil, run(t, nil, "", "--socket", n.Socket, "pods", "none"), ExitNotFound, "", "islet: pod \"none\" not found\n")
	check(t, nil, run(t, nil, "", "--socket="+n.Socket, "pods", "none"), ExitNotFound, "", "islet: pod \"none\" not found\n")
	if got := run(t, nil, "", "--socket"); got.code != ExitUsage || !strings.Contains(got.out, "COMMAND [flags]") {
		t.Errorf("no command after --socket: %+v", got)
	}
	for _, c := range []struct {
		called, args string
		terminal     bool
		want         bool
	}{
		{"islet", "pods", false, true},
		{"/usr/bin/islet", "--socket x pods", false, true},
		{"islet", "--v=2", true, false},
		{"islet", "--socket-x=1", true, false},
		{"islet", "", true, true},
		{"islet", "", false, false}, // the service manager starts islet without flags
		{"/usr/local/bin/kubelet", "", true, false},
		{"islet", "--help", false, true},
		{"islet", "-h", true, true},
		{"islet", "--help-flags", true, true},
		{"islet", "--v=2 --help", true, false},
		{"kubelet", "--help", true, false},
	} {
		if got := IsCommand(c.called, strings.Fields(c.args), c.terminal); got != c.want {
			t.Errorf("%s %s (terminal %v): command %v", c.called, c.args, c.terminal, got)
		}
	}
	stop()
	check(t, n, run(t, n, "", "status"), ExitUnreachable, "",
		"islet: cannot reach the agent at DIR/s: is it running? (systemctl status islet)\n")
	check(t, n, run(t, n, "", "exec", "web", "--", "ls"), ExitUnreachable, "",
		"islet: cannot reach the agent at DIR/s: is it running? (systemctl status islet)\n")
}

func TestDescribe(t *testing.T) {
	n, _ := node(t)
	got := run(t, n, "", "describe", "pod", "crash")
	got.out = regexp.MustCompile(`[A-Z][a-z]{2}, \d\d .*`).ReplaceAllString(got.out, "TIME")
	check(t, n, got, 0, `Name:             crash-pi
Namespace:        default
Priority:         0
Node:             pi/192.0.2.1
Start Time:       TIME
Labels:           <none>
Annotations:      kubernetes.io/config.source: local
Status:           Running
IP:               10.42.0.7
IPs:
  IP:  10.42.0.7
Containers:
  app:
    Container ID:
    Image:          localhost/app:1
    Image ID:
    Port:           <none>
    Host Port:      <none>
    State:          Waiting
      Reason:       CrashLoopBackOff
    Last State:     Terminated
      Exit Code:    1
      Started:      TIME
      Finished:     TIME
    Ready:          False
    Restart Count:  3
    Environment:    <none>
    Mounts:         <none>
Conditions:
  Type    Status   Reason
  Ready   True
Volumes:          <none>
QoS Class:        BestEffort
Node-Selectors:   <none>
Tolerations:      <none>
Events:           <none>
`, "")
}

func TestComplete(t *testing.T) {
	n, _ := node(t)
	for _, c := range []struct{ words, want string }{
		{"lo", "logs\n"},
		{"images im", "import\n"},
		{"logs w", "web-pi\n"},
		{"logs kube", "kube-system/dns-pi\n"},
		{"logs --prev", "--previous\n"},
		{"logs web -c s", "sidecar\n"},
		{"pods -o y", "yaml\n"},
		{"images rm l", "localhost/web:1\n"},
		{"exec web -- l", ""},
	} {
		check(t, n, run(t, n, "", append([]string{"__complete", "--"}, strings.Split(c.words, " ")...)...), 0, c.want, "")
	}
}
