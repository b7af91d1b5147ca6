package podresources_test

import (
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/islet-edge/islet/agent/device/counts"
	"github.com/islet-edge/islet/agent/device/devicemanager"
	"github.com/islet-edge/islet/agent/device/podresources"
	"github.com/islet-edge/islet/internal/podtest"
	"github.com/islet-edge/islet/internal/socket"
)

type shelf struct{}

func (shelf) List() []devicemanager.Resource {
	return []devicemanager.Resource{{Name: "example.com/a", Devices: []devicemanager.Device{{ID: "1", Healthy: true, NUMA: []int64{0, 1}}, {ID: "2"}, {ID: "3", Healthy: true}}}}
}

func (shelf) Holdings() []devicemanager.Holding {
	return []devicemanager.Holding{{UID: "web", Container: "c", Resource: "example.com/a", IDs: []string{"1", "3"}, NUMA: map[string][]int64{"1": {0}}}}
}

// TestAPI checks the responses of the PodResources API to calls of monitoring programs.
func TestAPI(t *testing.T) {
	root := t.TempDir()
	pod := func(name string, phase v1.PodPhase) *v1.Pod {
		p := podtest.New(name, podtest.UID("web"), podtest.Phase(phase))
		p.Spec.InitContainers = []v1.Container{{Name: "i"}, {Name: "s", RestartPolicy: new(v1.ContainerRestartPolicyAlways)}}
		return p
	}
	metrics := counts.NewPlugins()
	counted := metrics.PodResources
	s, err := podresources.Open(podresources.Config{Root: root, Sockets: socket.New(socket.Config{Log: slog.New(slog.DiscardHandler)}),
		Devices: shelf{}, Counter: counted,
		Pods: func() []*v1.Pod { return []*v1.Pod{pod("web", v1.PodRunning), pod("done", v1.PodSucceeded)} },
		Claims: func() []*podresources.ClaimDevices {
			return []*podresources.ClaimDevices{{"web", "c", &api.DynamicResource{ClaimName: "gpu"}}}
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	conn, err := grpc.NewClient("unix://"+filepath.Join(root, "pod-resources", "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	client := api.NewPodResourcesListerClient(conn)
	list, err := client.List(t.Context(), &api.ListPodResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	web := list.PodResources[0]
	if len(list.PodResources) != 1 || web.Name != "web" || len(web.Containers) != 2 || web.Containers[0].Name != "s" {
		t.Fatalf("the list is %v", list)
	}
	c := web.Containers[1]
	if len(c.Devices) != 2 || c.Devices[0].DeviceIds[0] != "1" || len(c.Devices[0].Topology.Nodes) != 1 ||
		c.Devices[1].Topology != nil || c.DynamicResources[0].ClaimName != "gpu" {
		t.Errorf("the container has %v", c)
	}
	if one, err := client.Get(t.Context(), &api.GetPodResourcesRequest{PodName: "done", PodNamespace: "default"}); err != nil || one.PodResources.Name != "done" {
		t.Error(one, err)
	}
	if _, err := client.Get(t.Context(), &api.GetPodResourcesRequest{PodName: "none", PodNamespace: "default"}); err == nil {
		t.Error("an unknown pod is found")
	}
	if there, err := client.GetAllocatableResources(t.Context(), &api.AllocatableResourcesRequest{}); err != nil || len(there.Devices) != 3 {
		t.Error(there, err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.Collectors(func() (map[string]int, int) { return map[string]int{}, 0 })...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		if name, ok := strings.CutPrefix(f.GetName(), "kubelet_pod_resources_endpoint_"); ok && f.Metric[0].Label[0].GetValue() == "v1" {
			got[name] = f.Metric[0].GetCounter().GetValue()
		}
	}
	want := map[string]float64{"requests_total": 4, "requests_list": 1, "requests_get": 2, "requests_get_allocatable": 1, "errors_get": 1}
	if !maps.Equal(got, want) {
		t.Errorf("counted %v, not %v", got, want)
	}
	conn.Close()
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
