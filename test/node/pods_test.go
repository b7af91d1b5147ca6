package node

import (
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// This manifest contains a pod that uses many fields of a pod spec.
const rich = `apiVersion: v1
kind: Pod
metadata: {name: rich, labels: {app: demo}}
spec:
  hostname: host
  subdomain: sub
  hostAliases: [{ip: 1.2.3.4, hostnames: [alias]}]
  terminationGracePeriodSeconds: 1
  securityContext: {runAsUser: 1000, runAsGroup: 2000, fsGroup: 3000}
  volumes:
  - {name: data, emptyDir: {}}
  - {name: mem, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  - {name: host, hostPath: {path: /run/rich/dir, type: DirectoryOrCreate}}
  - {name: image, image: {reference: IMAGE, pullPolicy: Never}}
  initContainers:
  - name: first
    image: IMAGE
    imagePullPolicy: Never
    args: [write, /data/greeting, "from $(POD)"]
    env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    volumeMounts: [{name: data, mountPath: /data}]
  - name: writes
    image: IMAGE
    imagePullPolicy: Never
    args: [write, /data/env, "TOKEN='of $(POD)'"]
    env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    volumeMounts: [{name: data, mountPath: /data}]
  - name: beside
    image: IMAGE
    imagePullPolicy: Never
    restartPolicy: Always
    args: [count, 10ms]
  containers:
  - name: c
    image: IMAGE
    imagePullPolicy: Never
    command: [/podtool]
    args: [sleep]
    workingDir: /work
    env:
    - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: CPU, valueFrom: {resourceFieldRef: {resource: requests.cpu, divisor: 1m}}}
    - {name: SUB, value: greeting}
    - {name: GIVEN, valueFrom: {fileKeyRef: {volumeName: data, path: env, key: TOKEN}}}
    resources: {requests: {cpu: 10m}, limits: {memory: 64Mi}}
    securityContext: {readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
    volumeMounts:
    - {name: data, mountPath: /data}
    - {name: mem, mountPath: /mem}
    - {name: host, mountPath: /host, readOnly: true}
    - {name: data, mountPath: /one, subPathExpr: $(SUB)}
    - {name: image, mountPath: /image}
`

func TestRichPod(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.Write("manifests/rich.yaml", strings.ReplaceAll(rich, "IMAGE", machine.Image))
	m.StartAgent()
	pod := m.WaitReady("rich-edge")["rich-edge"]
	do := func(args ...string) string {
		out, _ := m.Try(append([]string{"exec", "rich-edge", "-c", "c", "--", "/podtool"}, args...)...)
		return out
	}
	for _, tt := range []struct{ what, got, want string }{
		{"what the init container left", do("cat", "/data/greeting"), "from rich-edge"},
		{"the subPath", do("cat", "/one"), "from rich-edge"},
		{"a write to the volume", do("write", "/data/mine", "x"), ""},
		{"a write to memory", do("write", "/mem/mine", "x"), ""},
		{"host name", do("cat", "/etc/hostname"), "host\n"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %q, not %q", tt.what, tt.got, tt.want)
		}
	}
	for _, tt := range []struct{ what, got, want string }{
		{"/etc/hosts", do("cat", "/etc/hosts"), pod.Status.PodIP + "\thost.sub.default.svc"},
		{"alias", do("cat", "/etc/hosts"), "1.2.3.4\talias"},
		{"address in the environment", do("env"), "IP=" + pod.Status.PodIP + "\n"},
		{"request in the environment", do("env"), "CPU=10\n"},
		{"file in the environment", do("env"), "GIVEN=of rich-edge\n"},
		{"volume of an image", do("ls", "/image"), "podtool\n"},
		{"a write to it", do("write", "/image/x", "x"), "read-only file system"},
		{"read-only root", do("write", "/x", "x"), "read-only file system"},
		{"read-only mount", do("write", "/host/x", "x"), "read-only file system"},
		{"user and groups", do("cat", "/proc/self/status"), "Uid:\t1000\t1000\t1000\t1000\nGid:\t2000\t2000\t2000\t2000\n"},
		{"fsGroup", do("cat", "/proc/self/status"), "3000"},
		{"no new privileges", do("cat", "/proc/self/status"), "NoNewPrivs:\t1\n"},
		{"capabilities", do("cat", "/proc/self/status"), "CapPrm:\t0000000000000000\n"},
		{"memory volume", do("cat", "/proc/self/mountinfo"), "size=1024k"},
	} {
		if !strings.Contains(tt.got, tt.want) {
			t.Errorf("%s: no %q in %q", tt.what, tt.want, tt.got)
		}
	}
	m.Remove("manifests/rich.yaml")
	m.WaitReady()
}

// TestHostnameOverride checks that hostnameOverride is the complete host name of a pod's containers.
func TestHostnameOverride(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.Write("manifests/named.yaml", manifest("named", "  hostname: host\n  subdomain: sub\n  hostnameOverride: other.example.com\n", "sleep"))
	m.StartAgent()
	m.WaitReady("named-edge")
	for _, file := range []string{"/etc/hostname", "/proc/sys/kernel/hostname"} {
		if out := m.Islet("exec", "named-edge", "--", "/podtool", "cat", file); out != "other.example.com\n" {
			t.Errorf("%s has %q", file, out)
		}
	}
}

// TestReasons checks that containers that exit or cannot start have the reasons and events of a kubelet.
func TestReasons(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	never := "  restartPolicy: Never\n"
	for name, text := range map[string]string{
		"good":    manifest("good", never, "exit", "0"),
		"bad":     manifest("bad", "    terminationMessagePolicy: FallbackToLogsOnError\n"+never, "cat", "/none"),
		"crash":   manifest("crash", "", "exit", "3"),
		"words":   manifest("words", never, "write", "/dev/termination-log", "last words"),
		"missing": strings.ReplaceAll(manifest("missing", "", "sleep"), machine.Image, "example.com/missing:1"),
		"root":    manifest("root", "    securityContext: {runAsNonRoot: true}\n", "sleep"),
		"nothing": strings.Replace(manifest("nothing", "", "sleep"), "args:", "command: [/none]\n    args:", 1),
		"oom":     manifest("oom", "    resources: {limits: {memory: 16Mi}}\n"+never, "eat", "64"),
		"late":    manifest("late", "  activeDeadlineSeconds: 1\n", "sleep"),
	} {
		m.Write("manifests/"+name+".yaml", text)
	}
	m.StartAgent()
	for name, ok := range map[string]func(machine.Pod, machine.ContainerStatus) bool{
		"good": func(p machine.Pod, c machine.ContainerStatus) bool {
			return p.Status.Phase == "Succeeded" && c.State.Terminated != nil && c.State.Terminated.Reason == "Completed"
		},
		"bad": func(p machine.Pod, c machine.ContainerStatus) bool {
			return p.Status.Phase == "Failed" && c.State.Terminated != nil && strings.Contains(c.State.Terminated.Message, "/none: no such file")
		},
		"crash": func(p machine.Pod, c machine.ContainerStatus) bool {
			return c.RestartCount >= 1 && c.State.Waiting != nil && c.State.Waiting.Reason == "CrashLoopBackOff" && c.LastState.Terminated != nil && c.LastState.Terminated.ExitCode == 3
		},
		"words": func(p machine.Pod, c machine.ContainerStatus) bool {
			return c.State.Terminated != nil && c.State.Terminated.Message == "last words"
		},
		"missing": func(p machine.Pod, c machine.ContainerStatus) bool {
			return p.Status.Phase == "Pending" && c.State.Waiting != nil && c.State.Waiting.Reason == "ErrImageNeverPull"
		},
		"root": func(p machine.Pod, c machine.ContainerStatus) bool {
			return c.State.Waiting != nil && c.State.Waiting.Reason == "CreateContainerConfigError"
		},
		"nothing": func(p machine.Pod, c machine.ContainerStatus) bool {
			return c.LastState.Terminated != nil && c.LastState.Terminated.ExitCode == 128 && c.LastState.Terminated.Reason == "StartError"
		},
		"oom": func(p machine.Pod, c machine.ContainerStatus) bool {
			return p.Status.Phase == "Failed" && c.State.Terminated != nil && c.State.Terminated.Reason == "OOMKilled"
		},
		"late": func(p machine.Pod, c machine.ContainerStatus) bool {
			return p.Status.Phase == "Failed" && p.Status.Reason == "DeadlineExceeded"
		},
	} {
		m.WaitPods("pod "+name+" to have its reason", func(pods map[string]machine.Pod) bool {
			p, known := pods[name+"-edge"]
			return known && len(p.Status.ContainerStatuses) == 1 && ok(p, p.Status.ContainerStatuses[0])
		})
	}
	for name, events := range map[string][]string{
		"good":    {"already present on machine", "Container created", "Container started"},
		"crash":   {"Back-off restarting failed container"},
		"missing": {"is not present with pull policy of Never", "Error: ErrImageNeverPull"},
		"late":    {"active on the node longer"},
	} {
		m.Await("the events of "+name, func() bool {
			out := m.Islet("describe", "pod", name+"-edge")
			return !slices.ContainsFunc(events, func(e string) bool { return !strings.Contains(out, e) })
		})
	}
}
