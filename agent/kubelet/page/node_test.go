package page

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/podtest"
)

// A nodetest is a fake node. Its pods contain hostile text unless the field kind is set.
type nodetest struct{ kind bool }

// handler returns a fake of the agent's API for the node.
func (n nodetest) handler() http.Handler {
	now := time.Now()
	bad := hostile
	if n.kind {
		bad = "no such device"
	}
	version := currentVersion()
	say := func(v any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { json.NewEncoder(w).Encode(v) }
	}
	pods := n.pods(now, bad)
	events := []api.Event{{Type: "Normal", Reason: "Started", Message: "Started container main", Namespace: "default", Pod: "camera", Count: 1, Last: now.Add(-50 * time.Minute)},
		{Type: "Warning", Reason: "BackOff", Message: "Back-off restarting failed container " + bad, Namespace: "default", Pod: "sensor-reader", Container: "main", Count: 12, Last: now.Add(-time.Minute)}}
	m := http.NewServeMux()
	m.HandleFunc("GET "+api.PathStatus, say(api.Status{Node: "board-7", Version: version, Now: now, Started: now.Add(-40 * time.Hour), Pods: api.PodCounts{Total: 5, Ready: 3},
		Runtime: api.Runtime{Ready: true},
		Sources: []api.Source{{Name: "file", Problems: []api.Problem{
			{Origin: "/etc/islet/manifests/x.yaml", Field: "spec.containers[0].image", Message: "Required value"}}}},
		Addresses: []string{"192.168.1.7", "fd00::7"}, Disks: []api.Disk{{Path: "/", Total: 28 << 30, Free: 19 << 30}}, Problems: []string{"the clock is not set: " + bad},
		Troubles: []api.Trouble{{Namespace: "default", Name: "sensor-reader", Reason: "CrashLoopBackOff", Message: "exit code 1: " + bad}},
		Network:  api.Network{Ready: true, Config: "built in", PodCIDRs: []string{"10.88.0.0/16"}, Repairs: &api.Repairs{Count: 2, Last: now, What: bad}}}))
	m.HandleFunc("GET /pods", say(pods))
	m.HandleFunc("GET "+api.PathBoard, say(api.Board{Temperatures: []api.Temperature{{Name: "cpu-thermal", Celsius: 83.4}}, Power: []string{"under-voltage"},
		PowerSinceBoot: []string{"throttled"}, MHz: 600, MaxMHz: 1500, Links: []string{"eth0", "wlan0"}}))
	nano, bytes, free, used := uint64(37_000_000), uint64(48<<20), uint64(600<<20), uint64(500<<20)
	m.HandleFunc("GET "+api.PathStats, say(stats.Summary{Node: stats.NodeStats{Memory: &stats.MemoryStats{AvailableBytes: &free, WorkingSetBytes: &bytes, UsageBytes: &used}},
		Pods: []stats.PodStats{{PodRef: stats.PodReference{UID: "u0"}, CPU: &stats.CPUStats{UsageNanoCores: &nano}, Memory: &stats.MemoryStats{WorkingSetBytes: &bytes}}}}))
	m.HandleFunc("GET "+api.PathEvents, say(events))
	m.HandleFunc("GET "+api.PathDetails+"/{uid}", say(api.Details{Origin: "/etc/kubernetes/manifests/" + bad + ".yaml", Problems: []string{"volume data: " + bad},
		Hooks: []api.FailedHook{{Container: "main", Message: "a secret"}}, Events: events}))
	m.HandleFunc("GET /containerLogs/{ns}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.PathValue("pod") == "gone":
			panic(http.ErrAbortHandler)
		case n.kind:
			for i := range 60 {
				fmt.Fprintf(w, "2026-11-27T10:%02d:12Z \x1b[33mWARN\x1b[0m sensor %d: read /dev/i2c-1: %s\r\n", i, i%3, bad)
			}
		default:
			fmt.Fprintf(w, "listening\n%s\n%s\xff end \x1b[31mred\x1b[0m \u202edlrow\n", bad, strings.Repeat("x", 100<<10))
		}
	})
	return m
}

// currentVersion returns the version of the tree, which the pictures of the documents show.
func currentVersion() string {
	text, err := os.ReadFile("../../../Makefile")
	if err != nil {
		return err.Error()
	}
	_, rest, _ := strings.Cut(string(text), "\nVERSION  ?= ")
	version, _, _ := strings.Cut(rest, "\n")
	return version
}

// pods returns the pods of the node: two ready pods, a failing pod, a finished pod, and a ready pod with the name bad.
func (n nodetest) pods(now time.Time, bad string) (list v1.PodList) {
	names := []string{"camera", "gateway-with-a-rather-long-name-as-deployments-give-them-7f9c5d", "nightly-report", "sensor-reader", bad}
	sources := []string{"file", "api", "local", "http", bad}
	if n.kind {
		names[4], sources[1], sources[4] = "web", "file", "file"
	}
	for i, name := range names {
		p := *podtest.New(name, podtest.UID(fmt.Sprint("u", i)), podtest.Phase(v1.PodRunning),
			podtest.Source(sources[i]))
		p.CreationTimestamp = metav1.NewTime(now.Add(-49 * time.Hour))
		p.Spec.Containers = []v1.Container{{Name: "main", Image: "registry.example/site/" + strings.ReplaceAll(name, " ", "-") + ":1.4." + fmt.Sprint(i),
			Env: []v1.EnvVar{{Name: "KEY", Value: "a secret"}}, Args: []string{"a secret"}}, {Name: "side", Image: "busybox:1"}}
		p.Status.PodIPs = []v1.PodIP{{IP: fmt.Sprintf("10.88.0.%d", i+2)}}
		switch i {
		case 0:
			p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 8080, ContainerPort: 80}, {HostPort: 8443, ContainerPort: 8443, Name: "https"},
				{HostPort: 5353, ContainerPort: 53, Protocol: v1.ProtocolUDP}}
		case 2:
			p.Status.Phase = v1.PodSucceeded
			p.Status.PodIPs = nil
		case 3:
			p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", RestartCount: 12, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
				LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled", Message: bad, FinishedAt: metav1.NewTime(now.Add(-3 * time.Minute))}}}}
		case 4:
			p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 9000, ContainerPort: 9000, HostIP: bad, Name: bad, Protocol: v1.Protocol(bad)}}
			if n.kind {
				p.Spec.Containers[0].Ports[0].Protocol, p.Spec.Containers[0].Ports[0].Name, p.Spec.Containers[0].Ports[0].HostIP = "TCP", "http", ""
			}
		}
		if i != 2 && i != 3 {
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
		}
		list.Items = append(list.Items, p)
	}
	return list
}
