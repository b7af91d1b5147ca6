package status

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

const statusFile = "../../docs/pod-status.md"

// What the node makes of a field of a status.
const (
	fills  = "filled"       // some life of TestLives shows it
	fillsW = "filled where" // by what the lives do not have
	others = "not the node's"
	none   = "empty"
)

type fieldRow struct{ name, verdict, note string }

// statusTypes are the types whose every field has a row, in the order of the page.
var statusTypes = []struct {
	of    reflect.Type
	title string
	rows  []fieldRow
}{
	{reflect.TypeFor[v1.PodStatus](), "status", []fieldRow{
		{"observedGeneration", fills, ""},
		{"phase", fills, "not terminal while a container runs"},
		{"conditions", fills, "PodReadyToStartContainers, Initialized, Ready, ContainersReady, PodScheduled; DisruptionTarget when the node ends the pod; PodResizePending, PodResizeInProgress; AllContainersRestarting of a pod with such rules; what others set is kept"},
		{"message", fills, "also why a deletion is stuck"},
		{"reason", fills, ""},
		{"nominatedNodeName", others, "the scheduler's"},
		{"hostIP", fills, ""},
		{"hostIPs", fills, "one of each family"},
		{"podIP", fills, ""},
		{"podIPs", fills, "a pod that has ended keeps them"},
		{"startTime", fills, ""},
		{"initContainerStatuses", fills, ""},
		{"containerStatuses", fills, ""},
		{"qosClass", fills, ""},
		{"ephemeralContainerStatuses", fills, ""},
		{"resize", none, "conditions have replaced it"},
		{"resourceClaimStatuses", others, "a controller's"},
		{"extendedResourceClaimStatus", others, "the scheduler's"},
		{"allocatedResources", fillsW, "the pod has requests: those that it was given"},
		{"resources", fills, "what it has as a whole"},
		{"nodeAllocatableResourceClaimStatuses", others, "the scheduler's"},
	}},
	{reflect.TypeFor[v1.PodCondition](), "conditions[]", []fieldRow{
		{"type", fills, ""},
		{"observedGeneration", fills, ""},
		{"status", fills, ""},
		{"lastProbeTime", fillsW, "the pod is being resized"},
		{"lastTransitionTime", fills, ""},
		{"reason", fills, ""},
		{"message", fills, "PodReadyToStartContainers says why there is no sandbox, of which a kubelet has an event only"},
	}},
	{reflect.TypeFor[v1.ContainerStatus](), "containerStatuses[], initContainerStatuses[], ephemeralContainerStatuses[]", []fieldRow{
		{"name", fills, ""},
		{"state", fills, ""},
		{"lastState", fills, ""},
		{"ready", fills, ""},
		{"restartCount", fills, ""},
		{"image", fills, ""},
		{"imageID", fills, "repository and digest; of an image from an archive its ID"},
		{"containerID", fills, "containerd://ID"},
		{"started", fills, ""},
		{"allocatedResources", fillsW, "the container has requests: those that it was given"},
		{"resources", fills, "what it has"},
		{"volumeMounts", fills, ""},
		{"user", fills, "as the container was made"},
		{"allocatedResourcesStatus", none, "devices tell no health here"},
		{"stopSignal", fills, "of a container that names one"},
	}},
	{reflect.TypeFor[v1.ContainerStateWaiting](), "state.waiting", []fieldRow{
		{"reason", fills, "ContainerCreating, PodInitializing, ErrImagePull, ImagePullBackOff, InvalidImageName, ErrImageNeverPull, ImageInspectError, CreateContainerConfigError, CreateContainerError, RunContainerError, PostStartHookError, CrashLoopBackOff, RestartingAllContainers"},
		{"message", fills, "also why the pod has no sandbox"},
	}},
	{reflect.TypeFor[v1.ContainerStateRunning](), "state.running", []fieldRow{{"startedAt", fills, ""}}},
	{reflect.TypeFor[v1.ContainerStateTerminated](), "state.terminated", []fieldRow{
		{"exitCode", fills, ""},
		{"signal", none, "as with a kubelet: the exit code is 128 more"},
		{"reason", fills, "Completed, Error, OOMKilled, ContainerStatusUnknown; the runtime's StartError"},
		{"message", fills, "the termination message, bounded as by a kubelet"},
		{"startedAt", fills, ""},
		{"finishedAt", fills, ""},
		{"containerID", fills, ""},
	}},
	{reflect.TypeFor[v1.VolumeMountStatus](), "volumeMounts[]", []fieldRow{
		{"name", fills, ""},
		{"mountPath", fills, ""},
		{"readOnly", fills, ""},
		{"recursiveReadOnly", fills, ""},
		{"volumeStatus", none, "a feature that is off (ImageVolumeWithDigest)"},
	}},
	{reflect.TypeFor[v1.LinuxContainerUser](), "user.linux", []fieldRow{
		{"uid", fills, ""},
		{"gid", fills, ""},
		{"supplementalGroups", fills, ""},
	}},
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// TestEveryFieldOfAStatus: no field of the API is forgotten, and what is said to be filled
// is, in one life or another.
func TestEveryFieldOfAStatus(t *testing.T) {
	shown := map[reflect.Type]map[string]bool{}
	for _, l := range lives() {
		filled(reflect.ValueOf(statusOf(l)), shown)
	}
	page := "# What a pod's status says\n\nEvery field of a pod's status, in the order of the API (k8s.io/api), and whether this node fills it, as a kubelet 1.36 does. The page is made from the code; a test\n" +
		"fails when the API has a field that is not here, or when no pod of the tests has a field that is said to be filled.\n"
	for _, st := range statusTypes {
		var have, want []string
		page += fmt.Sprintf("\n## %s\n\n| Field | | |\n| --- | --- | --- |\n", st.title)
		for _, r := range st.rows {
			have = append(have, r.name)
			page += fmt.Sprintf("| %s | %s | %s |\n", r.name, r.verdict, r.note)
			if is := shown[st.of][r.name]; is != (r.verdict == fills) && r.verdict != fillsW {
				t.Errorf("%s.%s is said to be %s; a life shows it: %v", st.of.Name(), r.name, r.verdict, is)
			}
		}
		for i := range st.of.NumField() {
			want = append(want, jsonName(st.of.Field(i)))
		}
		if !slices.Equal(have, want) {
			t.Errorf("%s: rows %v\nwant %v", st.of.Name(), have, want)
		}
	}
	if *update {
		if err := os.WriteFile(statusFile, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(statusFile); err != nil || string(have) != page {
		t.Errorf("docs/pod-status.md is stale (%v): go test ./agent/status -run TestEveryField -update", err)
	}
}
