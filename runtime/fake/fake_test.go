package fake_test

import (
	"errors"
	"testing"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/crisuite"
	"github.com/islet-edge/islet/runtime/fake"
)

var (
	_ cri.Runtime = (*fake.Runtime)(nil)
	_ cri.Images  = (*fake.Runtime)(nil)
	_ cri.Events  = (*fake.Runtime)(nil)
)

func TestContract(t *testing.T) {
	r := fake.New(crisuite.ImageRef)
	crisuite.Run(t, crisuite.Subject{Runtime: r})
}

// TestInjection checks three functions of the fake runtime. Fail makes a call fail, End ends a container, and Reboot ends all containers.
func TestInjection(t *testing.T) {
	r := fake.New("i")
	wrong := errors.New("wrong")
	r.Fail = func(call, subject string) error {
		if call == "CreateContainer" && subject == "p/bad" {
			return wrong
		}
		return nil
	}
	ctx := t.Context()
	s, err := r.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Config: &api.PodSandboxConfig{Metadata: &api.PodSandboxMetadata{Name: "p", Uid: "u"}}})
	if err != nil {
		t.Fatal(err)
	}
	create := func(name string) (*api.CreateContainerResponse, error) {
		return r.CreateContainer(ctx, &api.CreateContainerRequest{PodSandboxId: s.PodSandboxId, Config: &api.ContainerConfig{
			Metadata: &api.ContainerMetadata{Name: name}, Image: &api.ImageSpec{Image: "i"},
		}})
	}
	if _, err := create("bad"); !errors.Is(err, wrong) {
		t.Errorf("got %v", err)
	}
	state := func(id string) *api.ContainerStatus {
		st, err := r.ContainerStatus(ctx, &api.ContainerStatusRequest{ContainerId: id})
		if err != nil {
			t.Fatal(err)
		}
		return st.Status
	}
	var ids []string
	for _, name := range []string{"one", "two"} {
		c, err := create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.StartContainer(ctx, &api.StartContainerRequest{ContainerId: c.ContainerId}); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, c.ContainerId)
	}
	r.End(ids[0], 5)
	r.Reboot()
	if a, b := state(ids[0]), state(ids[1]); a.ExitCode != 5 || b.ExitCode != 255 || b.State != api.ContainerState_CONTAINER_EXITED {
		t.Errorf("got %v and %v", a, b)
	}
}
