package podspec_test

import (
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/internal/podspec"
)

func TestResourceClaims(t *testing.T) {
	pod := &v1.Pod{}
	pod.Spec.ResourceClaims = []v1.PodResourceClaim{
		{Name: "shared", ResourceClaimName: new("gpu")}, {Name: "own", ResourceClaimTemplateName: new("t")}, {Name: "none", ResourceClaimTemplateName: new("t")},
	}
	if _, err := podspec.ResourceClaims(pod); err == nil {
		t.Error("a claim that is not made is known")
	}
	pod.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "own", ResourceClaimName: new("pod-own-x")}, {Name: "none"}}
	pod.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "ext", RequestMappings: []v1.ContainerExtendedResourceRequest{
		{ContainerName: "c", ResourceName: "example.com/gpu", RequestName: "r0"}, {ContainerName: "other", ResourceName: "example.com/gpu", RequestName: "r1"}}}
	got, err := podspec.ResourceClaims(pod)
	want := []podspec.ResourceClaim{{"shared", "gpu", false}, {"own", "pod-own-x", true}, {"", "ext", false}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Error(got, err)
	}
	ctr := &v1.Container{Name: "c"}
	ctr.Resources.Claims = []v1.ResourceClaim{{Name: "shared", Request: "a"}, {Name: "shared", Request: "b"}, {Name: "own"}, {Name: "none"}}
	ctr.Resources.Requests = v1.ResourceList{"example.com/gpu": resource.MustParse("1")}
	uses, err := podspec.ClaimRequests(pod, ctr)
	if want := map[string][]string{"gpu": {"a", "b"}, "pod-own-x": {""}, "ext": {"r0"}}; err != nil || !reflect.DeepEqual(uses, want) {
		t.Error(uses, err)
	}
	pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, v1.PodResourceClaim{Name: "x"})
	if _, err := podspec.ClaimRequests(pod, ctr); err == nil {
		t.Error("a claim that names nothing is one")
	}
}
